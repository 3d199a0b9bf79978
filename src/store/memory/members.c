/* SPDX-License-Identifier: MIT */
/* The list of servers in memory: see members.h. There are a few, so it is a list in order and not a tree. */

#include <string.h>

#include "base/alloc.h"
#include "store/memory/members.h"

#define KEPT_US ((int64_t)3600 * 1000000) /* after its time has run out */

/* Where the server with that address stands, or would. */
static struct fl__member **place_of(struct fl__members *members, const char *address)
{
    struct fl__member **at = &members->first;
    while (*at && strcmp((*at)->address, address) < 0)
        at = &(*at)->next;
    return at;
}

static void take_off(struct fl__members *members, struct fl__member **at)
{
    struct fl__member *member = *at;
    *at = member->next;
    members->count--;
    fl__release(member);
}

static void take_off_forgotten(struct fl__members *members, int64_t now_us)
{
    for (struct fl__member **at = &members->first; *at;)
        if ((*at)->claim_until_us < now_us - KEPT_US)
            take_off(members, at);
        else
            at = &(*at)->next;
}

static bool add(struct fl__members *members, struct fl__member **at, const char *address)
{
    struct fl__member *member = fl__alloc_zeroed(sizeof *member);
    if (!member)
        return false;
    memcpy(member->address, address, strlen(address) + 1);
    member->next = *at;
    *at = member;
    members->count++;
    return true;
}

static void renew(struct fl__member *member, const fl_store_request *request, int64_t until_us)
{
    const char *about = request->meet.about ? request->meet.about : "";
    memcpy(member->about, about, strlen(about) + 1);
    member->incarnation = request->meet.incarnation;
    member->claim_until_us = until_us;
}

int fl__members_note(struct fl__members *members, const fl_store_request *request, int64_t now_us, int64_t until_us)
{
    if (!request->meet.address)
        return 0;
    bool gone = request->meet.claim_us == 0, join = request->meet.join;
    struct fl__member **at = place_of(members, request->meet.address);
    bool listed = *at && strcmp((*at)->address, request->meet.address) == 0;
    if (!listed && join && !gone) {
        if (!add(members, at, request->meet.address))
            return FL_NO_MEMORY;
        listed = true;
    }
    if (listed && (join || (*at)->incarnation == request->meet.incarnation)) {
        if (gone)
            take_off(members, at);
        else
            renew(*at, request, until_us);
    }
    if (join)
        take_off_forgotten(members, now_us);
    return 0;
}

void fl__members_clear(struct fl__members *members)
{
    while (members->first)
        take_off(members, &members->first);
}
