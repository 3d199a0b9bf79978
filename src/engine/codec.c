/* SPDX-License-Identifier: MIT */
/* A timer as the bytes of a row, and an ID as text.
 *
 * A body is a byte of flags, the creation as a difference to the row's time in milliseconds, then what the flags say is
 * there, then the payload up to the end. A plain timer costs five bytes beyond its payload. Numbers are varints
 * (base/varint.h); those that may be negative have their sign in the lowest bit.
 *
 * What few timers have is described by a second number of flags (HAS_MORE), so that those that have nothing of it pay
 * nothing for it. A body with a flag that is not known is not read: a later version has written it.
 */

#include "base/varint.h"
#include "engine/internal.h"

enum body_flags {
    HAS_DUE = 1, /* another one than the row's time */
    HAS_ATTEMPT = 2,
    HAS_TIMEOUT = 4,
    HAS_RETRY = 8,
    HAS_TARGET = 16,
    HAS_HEADERS = 32,
    HAS_MORE = 64,
    KNOWN = 127,
};

enum more_flags {
    HAS_SCHEDULE = 1,
    HAS_CIVIL = 2,
    HAS_MAX_WAIT = 4,
    MERGES_FIRST = 8,
    HAS_REPLACED = 16,
    MORE_KNOWN = 31,
};

static bool has_retry(const fl_retry *retry)
{
    return retry->max_attempts || retry->multiplier_1000 || retry->initial_us || retry->max_interval_us ||
           retry->max_age_us;
}

size_t fl__body_size(const fl_durable *timer)
{
    return 1 + (size_t)21 * FL__VARINT_MAX + timer->target.size + timer->headers.size + timer->payload.size +
           timer->schedule.size + timer->local.size + timer->zone.size;
}

static size_t put_bytes(unsigned char *out, fl_bytes bytes)
{
    if (bytes.size > 0)
        memcpy(out, bytes.data, bytes.size);
    return bytes.size;
}

static size_t put_retry(unsigned char *out, const fl_retry *retry)
{
    const uint64_t values[] = {retry->max_attempts, retry->multiplier_1000, retry->initial_us, retry->max_interval_us,
                               retry->max_age_us};
    size_t size = 0;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        size += fl__varint_put(out + size, values[i]);
    return size;
}

static size_t put_sized(unsigned char *out, fl_bytes bytes)
{
    size_t size = fl__varint_put(out, bytes.size);
    return size + put_bytes(out + size, bytes);
}

static unsigned more_of(const fl_durable *timer)
{
    return (timer->schedule.size > 0 ? HAS_SCHEDULE : 0u) |
           (timer->local.size > 0 || timer->zone.size > 0 ? HAS_CIVIL : 0u) |
           (timer->max_wait_us > 0 ? HAS_MAX_WAIT : 0u) | (timer->merge_first ? MERGES_FIRST : 0u) |
           (timer->replaced > 0 ? HAS_REPLACED : 0u);
}

static size_t put_more(unsigned char *out, const fl_durable *timer, unsigned more)
{
    size_t size = fl__varint_put(out, more);
    fl__assert(more != 0 && (more & ~(unsigned)MORE_KNOWN) == 0);
    if (more & HAS_SCHEDULE) {
        size += put_sized(out + size, timer->schedule);
        size += fl__varint_put(out + size, fl__zigzag(timer->occurrence_us));
        size += fl__varint_put(out + size, fl__zigzag(timer->previous_us));
        size += fl__varint_put(out + size, fl__zigzag(timer->next_us));
    }
    if (more & HAS_CIVIL) {
        size += put_sized(out + size, timer->local);
        size += put_sized(out + size, timer->zone);
    }
    if (more & HAS_MAX_WAIT)
        size += fl__varint_put(out + size, timer->max_wait_us);
    if (more & HAS_REPLACED) {
        size += fl__varint_put(out + size, timer->replaced);
        size += fl__varint_put(out + size, fl__zigzag(timer->first_created_us));
    }
    return size;
}

size_t fl__body_encode(const fl_durable *timer, int64_t at_us, unsigned char *out)
{
    size_t size = 1;
    unsigned char flags = 0;
    size += fl__varint_put(out + size, fl__zigzag(at_us / 1000 - timer->created_us / 1000));
    if (timer->due_us != at_us) {
        flags |= HAS_DUE;
        size += fl__varint_put(out + size, fl__zigzag(timer->due_us));
    }
    if (timer->attempt > 0) {
        flags |= HAS_ATTEMPT;
        size += fl__varint_put(out + size, timer->attempt);
    }
    if (timer->timeout_us > 0) {
        flags |= HAS_TIMEOUT;
        size += fl__varint_put(out + size, timer->timeout_us);
    }
    if (has_retry(&timer->retry)) {
        flags |= HAS_RETRY;
        size += put_retry(out + size, &timer->retry);
    }
    if (timer->target.size > 0) {
        flags |= HAS_TARGET;
        size += put_sized(out + size, timer->target);
    }
    if (timer->headers.size > 0) {
        flags |= HAS_HEADERS;
        size += put_sized(out + size, timer->headers);
    }
    unsigned more = more_of(timer);
    if (more) {
        flags |= HAS_MORE;
        size += put_more(out + size, timer, more);
    }
    out[0] = flags;
    return size + put_bytes(out + size, timer->payload);
}

struct reader {
    const unsigned char *at, *end;
    bool broken;
};

static uint64_t read_number(struct reader *r)
{
    uint64_t value = 0;
    if (!fl__varint_get(&r->at, r->end, &value))
        r->broken = true;
    return value;
}

static fl_bytes read_bytes(struct reader *r)
{
    uint64_t size = read_number(r);
    if (r->broken || size > (uint64_t)(r->end - r->at)) {
        r->broken = true;
        return (fl_bytes){0};
    }
    fl_bytes bytes = {r->at, size};
    fl__assert(r->at + size <= r->end);
    r->at += size;
    return bytes;
}

/* The engine accepts no longer name, so this is damage. */
static fl_bytes read_name(struct reader *r)
{
    fl_bytes name = read_bytes(r);
    if (name.size > FL_STORE_NAME_MAX)
        r->broken = true;
    return name;
}

static void read_retry(struct reader *r, fl_retry *retry)
{
    retry->max_attempts = (uint32_t)read_number(r);
    retry->multiplier_1000 = (uint32_t)read_number(r);
    retry->initial_us = read_number(r);
    retry->max_interval_us = read_number(r);
    retry->max_age_us = read_number(r);
}

static void read_more(struct reader *r, fl_durable *ret)
{
    uint64_t more = read_number(r);
    if (more & ~(uint64_t)MORE_KNOWN)
        r->broken = true;
    if (more & HAS_SCHEDULE) {
        ret->schedule = read_name(r);
        ret->occurrence_us = fl__unzigzag(read_number(r));
        ret->previous_us = fl__unzigzag(read_number(r));
        ret->next_us = fl__unzigzag(read_number(r));
    }
    if (more & HAS_CIVIL) {
        ret->local = read_bytes(r);
        ret->zone = read_bytes(r);
    }
    ret->max_wait_us = more & HAS_MAX_WAIT ? read_number(r) : 0;
    ret->merge_first = more & MERGES_FIRST;
    if (more & HAS_REPLACED) {
        ret->replaced = (uint32_t)read_number(r);
        ret->first_created_us = fl__unzigzag(read_number(r));
    }
}

/* What the body does not say of `ret` stays as it is. */
int fl__body_decode(fl_bytes body, int64_t at_us, fl_durable *ret)
{
    struct reader r = {body.data, (const unsigned char *)body.data + body.size, false};
    if (body.size == 0 || (*r.at & ~KNOWN))
        return FL_STORE_CORRUPT;
    unsigned char flags = *r.at++;
    ret->created_us = (at_us / 1000 - fl__unzigzag(read_number(&r))) * 1000;
    ret->due_us = flags & HAS_DUE ? fl__unzigzag(read_number(&r)) : at_us;
    ret->attempt = flags & HAS_ATTEMPT ? (uint32_t)read_number(&r) : 0;
    ret->timeout_us = flags & HAS_TIMEOUT ? read_number(&r) : 0;
    ret->retry = (fl_retry){0};
    if (flags & HAS_RETRY)
        read_retry(&r, &ret->retry);
    ret->target = flags & HAS_TARGET ? read_bytes(&r) : (fl_bytes){0};
    ret->headers = flags & HAS_HEADERS ? read_bytes(&r) : (fl_bytes){0};
    if (flags & HAS_MORE)
        read_more(&r, ret);
    fl__assert(r.at <= r.end);
    ret->payload = (fl_bytes){r.at, (size_t)(r.end - r.at)};
    return r.broken ? FL_STORE_CORRUPT : 0;
}

/* A body that cannot be read gives a timer without content: better than one that never fires. */
void fl__row_timer(const fl_row *row, fl_durable *ret)
{
    const fl_durable bare = {.ns = row->ns, .name = row->name, .id = row->id, .revision = row->key.seq};
    *ret = bare;
    if (fl__body_decode(row->body, row->key.at_us, ret) < 0) {
        *ret = bare;
        ret->due_us = row->key.at_us;
    }
}

/* --- IDs ---------------------------------------------------------------------------------------------------------- */

/* Crockford's alphabet: no letter looks like a digit. */
static const char digits[] = "0123456789abcdefghjkmnpqrstvwxyz";

/* 16 bits of shard, 56 of time, 56 of sequence number: 128 bits, in 26 digits of which the first has three. */
void fl_id_format(uint32_t shard, fl_key id, char out[FL_ID_TEXT + 1])
{
    unsigned __int128 bits =
        (unsigned __int128)(shard & 0xffff) << 112 | (unsigned __int128)((uint64_t)id.at_us & SEQ_MAX) << 56 | id.seq;
    for (int i = FL_ID_TEXT - 1; i >= 0; i--, bits >>= 5)
        out[i] = digits[(unsigned)bits & 31];
    out[FL_ID_TEXT] = 0;
}

static int digit_value(char c)
{
    if (c >= 'A' && c <= 'Z')
        c = (char)(c - 'A' + 'a');
    const char *found = c ? strchr(digits, c) : NULL;
    return found ? (int)(found - digits) : -1;
}

int fl_id_parse(const char *text, size_t size, uint32_t *ret_shard, fl_key *ret_id)
{
    unsigned __int128 bits = 0;
    if (size != FL_ID_TEXT || digit_value(text[0]) > 7)
        return FL_INVALID_TIMER_ID;
    for (size_t i = 0; i < size; i++) {
        int value = digit_value(text[i]);
        if (value < 0)
            return FL_INVALID_TIMER_ID;
        bits = bits << 5 | (unsigned)value;
    }
    fl_key id = {(int64_t)((uint64_t)(bits >> 56) & SEQ_MAX), (uint64_t)bits & SEQ_MAX};
    if (id.seq == 0 || id.at_us >= FL_STORE_TIME_END)
        return FL_INVALID_TIMER_ID;
    *ret_shard = (uint32_t)(bits >> 112);
    *ret_id = id;
    return 0;
}
