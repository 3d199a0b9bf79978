/* SPDX-License-Identifier: MIT */
/* GET /v1/events?sample=4/s: how many events there were instead of the events, for rates that are too high to read.
 *
 * Nothing is done per event: a sample is the difference between two sums of the counters that /v1/stats has (node/stats.c).
 * Streams of one worker with the same namespace and rate share a sampler, which asks for the sums once for all of them. */

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "api/internal.h"
#include "api/timer.h"

#define QUIET_NS 10000000000ull /* a sample is sent at least this often */

struct sample_stream {
    struct sample_stream *next;
    struct sampler *sampler;
    struct call *call;
    struct session_watch *login; /* NULL: it has none */
    bool begun;                  /* it has got a sample */
    struct stats_step seen;      /* totals at the last sample */
    struct stats_gauges gauges;  /* the same */
    uint64_t sent_ns, looked_ns; /* a sample; whether the login is good */
};

struct sampler {
    struct sampler *next;
    struct worker *worker;
    struct sample_stream *streams;
    unsigned rate; /* per second */
    bool asking;   /* it is freed when the answer is there, if it has no streams then */
    fl_timer_id tick;
    fl_bytes ns; /* size 0: all */
    char room[256];
};

/* --- Sending -------------------------------------------------------------------------------------------------------- */

static uint32_t more(uint32_t now, uint32_t before)
{
    return now > before ? now - before : 0; /* fewer: a server has gone, and its counts with it */
}

static void write_sample(struct out *out, const struct sample_stream *stream, const struct stats *sum)
{
    static const char *const names[] = {"scheduled", "fired", "failed", "dead", "cancelled", "skipped"};
    const struct sampler *sampler = stream->sampler;
    const struct stats_step *now = &sum->ring.total, *before = stream->begun ? &stream->seen : now;
    out_text(out, "event: sample\ndata: {\"at\":");
    out_time(out, node_now(sampler->worker->node));
    out_text(out, ",\"counts\":{");
    for (unsigned i = 0; i < STATS_KINDS; i++)
        out_format(out, "%s\"%s\":%" PRIu32, i > 0 ? "," : "", names[i], more(now->counts[i], before->counts[i]));
    out_text(out, "},\"lateness\":[");
    for (unsigned i = 0; i < STATS_BUCKETS; i++)
        out_format(out, "%s%" PRIu32, i > 0 ? "," : "", more(now->lateness[i], before->lateness[i]));
    out_text(out, "],");
    stats_write_gauges(out, &sum->gauges, sampler->ns.size == 0);
    out_text(out, "}\n\n");
}

static bool has_same_counts(const struct stats_step *a, const struct stats_step *b)
{
    return memcmp(a->counts, b->counts, sizeof a->counts) == 0 &&
           memcmp(a->lateness, b->lateness, sizeof a->lateness) == 0;
}

static bool is_news(const struct sample_stream *stream, const struct stats *sum, uint64_t now_ns)
{
    return !stream->begun || now_ns - stream->sent_ns >= QUIET_NS ||
           !has_same_counts(&stream->seen, &sum->ring.total) ||
           memcmp(&stream->gauges, &sum->gauges, sizeof stream->gauges) != 0;
}

/* Streams that have got the same samples get the same text: it is written once. */
struct sample_text {
    struct out out;
    bool begun;
    struct stats_step seen;
};

static void make_text(struct sample_text *text, const struct sample_stream *stream, const struct stats *sum)
{
    bool same = text->begun == stream->begun && has_same_counts(&text->seen, &stream->seen);
    if (text->out.size > 0 && same)
        return;
    out_clear(&text->out);
    write_sample(&text->out, stream, sum);
    text->begun = stream->begun;
    text->seen = stream->seen;
}

/* A client that reads too slowly gets larger samples later. */
static void send_sample(struct sample_stream *stream, const struct stats *sum, struct sample_text *text)
{
    uint64_t now_ns = fl_loop_now_ns(stream->sampler->worker->loop);
    if (!is_news(stream, sum, now_ns) || http_unsent(stream->call->request) > EVENTS_BYTES)
        return;
    make_text(text, stream, sum);
    if (text->out.failed)
        return;
    http_write(stream->call->request, out_bytes(&text->out));
    stream->begun = true;
    stream->seen = sum->ring.total;
    stream->gauges = sum->gauges;
    stream->sent_ns = now_ns;
}

static void sampler_end(struct sampler *sampler)
{
    struct sampler **at = &api_here(sampler->worker)->samplers;
    if (sampler->asking || sampler->streams)
        return;
    while (*at != sampler)
        at = &(*at)->next;
    *at = sampler->next;
    fl_loop_cancel(sampler->worker->loop, sampler->tick);
    free(sampler);
}

static void summed(void *arg, const struct stats *sum)
{
    struct sampler *sampler = arg;
    struct sample_text text = {0};
    sampler->asking = false;
    for (struct sample_stream *stream = sampler->streams, *next; stream; stream = next) {
        next = stream->next;
        send_sample(stream, sum, &text);
    }
    out_free(&text.out);
    sampler_end(sampler);
}

static void tick(fl_loop *loop, void *arg)
{
    struct sampler *sampler = arg;
    uint64_t now_ns = fl_loop_now_ns(loop);
    for (struct sample_stream *stream = sampler->streams; stream; stream = stream->next)
        if (stream->login && now_ns - stream->looked_ns >= QUIET_NS) {
            stream->looked_ns = now_ns;
            session_watch_look(stream->login);
        }
    if (sampler->asking || !sampler->streams)
        return;
    sampler->asking = true;
    if (stats_ask(sampler->worker, sampler->ns, false, summed, sampler) < 0)
        sampler->asking = false; /* the next time */
}

/* --- Streams -------------------------------------------------------------------------------------------------------- */

static void stream_end(struct sample_stream *stream)
{
    struct sampler *sampler = stream->sampler;
    struct call *call = stream->call;
    http_request *request = call->request;
    struct sample_stream **at = &sampler->streams;
    while (*at != stream)
        at = &(*at)->next;
    *at = stream->next;
    session_watch_free(stream->login);
    free(stream);
    call_drop(call);
    http_end(request);
    sampler_end(sampler);
}

static void login_ended(void *arg)
{
    stream_end(arg);
}

static void gone(http_request *request)
{
    struct call *call = request->arg;
    stream_end(call->state);
}

static struct sampler *sampler_of(struct worker *worker, fl_bytes ns, unsigned rate)
{
    struct sampler **all = &api_here(worker)->samplers;
    assert(rate > 0);
    for (struct sampler *sampler = *all; sampler; sampler = sampler->next)
        if (sampler->rate == rate && sampler->ns.size == ns.size && memcmp(sampler->room, ns.data, ns.size) == 0)
            return sampler;
    struct sampler *sampler = calloc(1, sizeof *sampler);
    if (!sampler)
        return NULL;
    *sampler = (struct sampler){.next = *all, .worker = worker, .rate = rate};
    memcpy(sampler->room, ns.data, ns.size);
    sampler->ns = (fl_bytes){sampler->room, ns.size};
    if (fl_loop_interval(worker->loop, 1000000000u / rate, 0, tick, sampler, &sampler->tick) < 0) {
        free(sampler);
        return NULL;
    }
    *all = sampler;
    return sampler;
}

/* "4/s": at most 20. */
static int read_rate(struct call *call, unsigned *ret)
{
    char room[8] = "", *end = room;
    fl_bytes text;
    *ret = 0;
    if (call_query(call, "sample", room, sizeof room - 1, &text) > 0) {
        room[text.size] = '\0';
        if (room[0] >= '0' && room[0] <= '9')
            *ret = (unsigned)strtoul(room, &end, 10);
    }
    if (strcmp(end, "/s") == 0 && *ret >= 1 && *ret <= 20)
        return 0;
    return problem_set(&call->problem, 400, "invalid-field", "sample",
                       "sample must be a rate from 1/s to 20/s, such as 4/s");
}

static int begin_stream(struct call *call, fl_bytes ns, unsigned rate)
{
    struct sampler *sampler = sampler_of(call->worker, ns, rate);
    struct sample_stream *stream = sampler ? calloc(1, sizeof *stream) : NULL;
    struct session_watch *login = stream && call->cookie[0] ? session_watch_new(call, login_ended, stream) : NULL;
    if (!stream || (call->cookie[0] && !login)) {
        free(stream);
        if (sampler)
            sampler_end(sampler);
        return FL_NO_MEMORY;
    }
    *stream = (struct sample_stream){.next = sampler->streams, .sampler = sampler, .call = call, .login = login};
    sampler->streams = stream;
    call->state = stream;
    call->request->gone = gone;
    call->request->gone_at_eof = true;
    http_begin(call->request, 200, "text/event-stream", "Cache-Control: no-store\r\n");
    tick(call->worker->loop, sampler);
    return 0;
}

void samples_get(struct call *call)
{
    static const char *const known[] = {"namespace", "sample", NULL};
    char room[256];
    fl_bytes ns;
    unsigned rate;
    if (call_check_query(call, known) < 0 || stats_read_namespace(call, room, &ns) < 0 || read_rate(call, &rate) < 0) {
        call_refuse(call);
    } else if (call->request->method == HTTP_HEAD) {
        http_request *request = call->request;
        http_begin(request, 200, "text/event-stream", "Cache-Control: no-store\r\n");
        call_drop(call);
        http_end(request);
    } else if (begin_stream(call, ns.size > 0 ? ns : (fl_bytes){"", 0}, rate) < 0) {
        call_refuse_result(call, FL_NO_MEMORY);
    }
}

/* --- All of a worker ------------------------------------------------------------------------------------------------ */

static bool may_stay(struct sample_stream *stream)
{
    return call_is_let_in(stream->call) && call_may(stream->call, RIGHT_READ, stream->sampler->ns);
}

static void end_some(struct worker *worker, bool all)
{
    for (struct sampler *sampler = api_here(worker)->samplers, *next; sampler; sampler = next) {
        next = sampler->next;
        for (struct sample_stream *stream = sampler->streams, *after; stream; stream = after) {
            after = stream->next;
            if (all || !may_stay(stream))
                stream_end(stream);
        }
    }
}

void samples_check(struct worker *worker)
{
    end_some(worker, false);
}

void samples_stop(struct worker *worker)
{
    end_some(worker, true);
}
