/* SPDX-License-Identifier: MIT */
/* Search: the parameters that lists, cancelling by filter and dead letters share. The engine knows most of them; the exact reason
 * and the host are compared here, with what the engine has found. */

#include <string.h>

#include "api/filter.h"
#include "webhook/webhook.h"

int filter_read(struct call *call, struct filter *filter, fl_listing *listing)
{
    const struct {
        const char *name;
        char *room;
        size_t size;
        fl_bytes *to;
    } texts[] = {
        {"name_contains", filter->name_contains, sizeof filter->name_contains, &listing->name_contains},
        {"target_prefix", filter->target_prefix, sizeof filter->target_prefix, &listing->target_prefix},
        {"schedule", filter->schedule, sizeof filter->schedule, &listing->schedule},
        {"reason_contains", filter->reason_contains, sizeof filter->reason_contains, &listing->reason_contains},
        {"reason", filter->reason_room, sizeof filter->reason_room, &filter->reason},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (call_query(call, texts[i].name, texts[i].room, texts[i].size, texts[i].to) < 0)
            return -1;
    if (listing->schedule.data && listing->schedule.size == 0)
        return problem_set(&call->problem, 400, "invalid-field", "schedule",
                           "schedule must be a name of 1 to 255 bytes");
    int given = call_query(call, "host", filter->host_room, sizeof filter->host_room, &filter->host);
    filter->by_host = given > 0;
    return given < 0 ? -1 : 0;
}

bool filter_searches(const struct filter *filter, const fl_listing *listing)
{
    return listing->name_contains.size > 0 || listing->target_prefix.size > 0 || listing->schedule.size > 0 ||
           listing->reason_contains.size > 0 || filter->reason.size > 0 || filter->by_host ||
           (listing->dead && listing->prefix.size > 0);
}

bool filter_is_empty(const struct filter *filter, const fl_listing *listing)
{
    return listing->from_us == 0 && listing->until_us == 0 && listing->prefix.size == 0 &&
           !filter_searches(filter, listing);
}

fl_bytes filter_host(fl_bytes url, char room[FILTER_HOST])
{
    if (url.size == 0)
        return (fl_bytes){"", 0};
    struct webhook_target target = webhook_target(url);
    if (target.problem)
        return (fl_bytes){"", 0};
    return webhook_host_text(&target, room);
}

static bool same(fl_bytes a, fl_bytes b)
{
    return a.size == b.size && memcmp(a.data, b.data, a.size) == 0;
}

bool filter_takes(const struct filter *filter, const fl_op *found)
{
    char room[FILTER_HOST];
    return (filter->reason.size == 0 || same(filter->reason, found->reason)) &&
           (!filter->by_host || same(filter->host, filter_host(found->timer.target, room)));
}
