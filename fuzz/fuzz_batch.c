/* SPDX-License-Identifier: MIT */
/* A batch, over HTTP as it is: whatever its lines are, however the stream is cut (with a length or in chunks, at any byte) and
 * however late and in whatever order the shards answer, every line that is not blank has one answer, in its place, and it is
 * the same as if all had come at once; and every shard gets its operations in the order of the lines. Who goes away in the
 * middle leaves nothing behind. The first two bytes say how; the rest is the body.
 *
 * The shards are played here: what they answer depends on nothing but the operation. */

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "api/internal.h"
#include "api/schedules.h"
#include "http/internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

enum { SHARDS = 3, LINE_MOST = 200 };

/* How it goes. */
enum { CHUNKED = 1, LATE = 2, LEAVES = 4, READS_LATE = 8 };

struct text {
    char *data;
    size_t size, room;
};

static struct {
    unsigned ways;
    uint32_t luck;
    fl_virtual_clock clock;
    fl_loop *loop;
    http_server *http;
    struct node node;
    struct worker worker;
    struct api api;
    struct api_worker here;
    struct shard shards[SHARDS];
    struct shard_call *first[SHARDS], **end[SHARDS]; /* that are not answered */
    uint32_t digests[SHARDS];                        /* of the operations, in their order */
    struct call **schedules;                         /* lines about schedules that are not answered */
    size_t schedule_count, schedule_room;
    unsigned batches;
    int fd; /* the client's */
    struct text answer;
    struct space space; /* the last: it has a member without a size */
} fuzz;

static uint32_t below(uint32_t limit)
{
    fuzz.luck = fuzz.luck * 1664525 + 1013904223;
    return (fuzz.luck >> 8) % limit;
}

static void add(struct text *text, const void *data, size_t size)
{
    if (text->room - text->size < size) {
        text->room = (text->size + size) * 2;
        text->data = realloc(text->data, text->room);
        if (!text->data)
            abort();
    }
    if (size > 0)
        memcpy(text->data + text->size, data, size);
    text->size += size;
}

/* --- What the server has besides ---------------------------------------------------------------------------------- */

static int64_t wall_us(fl_wall_clock *clock)
{
    (void)clock;
    return INT64_C(1800000000000000);
}

static uint32_t digest(uint32_t start, const void *data, size_t size)
{
    const unsigned char *bytes = data;
    for (size_t i = 0; i < size; i++)
        start = (start ^ bytes[i]) * 16777619;
    return start;
}

static uint32_t digest_of(const fl_op *op)
{
    uint32_t d = (2166136261u ^ (uint32_t)op->kind) * 31 + op->flags;
    d = digest(d, op->timer.ns.data, op->timer.ns.size);
    d = digest(d, op->timer.name.data, op->timer.name.size);
    d = digest(d, op->timer.payload.data, op->timer.payload.size);
    d = digest(d, &op->timer.due_us, sizeof op->timer.due_us);
    return digest(d, &op->timer.id.seq, sizeof op->timer.id.seq);
}

static void perform(fl_op *op)
{
    static const int results[] = {0, FL_TIMER_NOT_FOUND, 0, FL_EXISTS, 0, FL_NO_MEMORY, 0, FL_OUTCOME_UNKNOWN};
    uint32_t d = digest_of(op);
    op->result = results[d % 8];
    op->timer.id = (fl_key){.at_us = (int64_t)(d >> 3) * 1000, .seq = (d | 1) & 0xffffff};
}

/* Answers the call that a shard has had for longest. */
static void answer_one(uint32_t shard)
{
    struct shard_call *call = fuzz.first[shard];
    fuzz.first[shard] = call->next;
    if (!call->next)
        fuzz.end[shard] = &fuzz.first[shard];
    for (size_t i = 0; i < call->batch.count; i++) {
        fuzz.digests[shard] = fuzz.digests[shard] * 31 + digest_of(&call->batch.ops[i]);
        perform(&call->batch.ops[i]);
    }
    call->render(call);
    call->done(call);
}

void shard_call_submit(struct shard_call *call)
{
    uint32_t shard = call->shard->number;
    assert(call->batch.count > 0 && shard < SHARDS);
    call->next = NULL;
    *fuzz.end[shard] = call;
    fuzz.end[shard] = &call->next;
    if (!(fuzz.ways & LATE) && fuzz.first[shard] == call)
        answer_one(shard);
}

static void answer_schedule(struct call *call)
{
    uint32_t d = digest(digest(2166136261u, call->ns.data, call->ns.size), call->name.data, call->name.size);
    if (d % 4 == 0)
        problem_set(&call->problem, 404, "not-found", NULL, "it is not there");
    call->answered(call, d % 4 == 0 ? 404 : 200);
}

/* Lines about one schedule wait for each other, so those that wait here are about different ones: any may be next. */
static void answer_some_schedule(void)
{
    size_t i = below((uint32_t)fuzz.schedule_count);
    struct call *call = fuzz.schedules[i];
    fuzz.schedules[i] = fuzz.schedules[--fuzz.schedule_count];
    answer_schedule(call);
}

static void submit_schedule(struct call *call)
{
    if (!(fuzz.ways & LATE)) {
        answer_schedule(call);
        return;
    }
    if (fuzz.schedule_count == fuzz.schedule_room) {
        fuzz.schedule_room = fuzz.schedule_room * 2 + 8;
        fuzz.schedules = realloc(fuzz.schedules, fuzz.schedule_room * sizeof(struct call *));
        if (!fuzz.schedules)
            abort();
    }
    fuzz.schedules[fuzz.schedule_count++] = call;
}

void schedule_put_line(struct call *call, struct json line, bool only_new)
{
    (void)line, (void)only_new;
    submit_schedule(call);
}

void schedules_delete(struct call *call)
{
    submit_schedule(call);
}

struct shard *shard_of_worker(struct worker *worker)
{
    return &worker->node->shards[0]; /* always, that the order can be compared */
}

struct shard *shard_of_op(struct node *node, fl_op *op)
{
    fl_bytes ns = op->timer.ns, name = op->timer.name;
    return &node->shards[digest(digest(2166136261u, ns.data, ns.size), name.data, name.size) % SHARDS];
}

bool call_is_let_in(struct call *call)
{
    (void)call;
    return true;
}

bool call_may(const struct call *call, unsigned right, fl_bytes ns)
{
    (void)call;
    assert(right == RIGHT_WRITE);
    return ns.size == 0 || *(const char *)ns.data != 'x';
}

int call_refuse_result(struct call *call, int result)
{
    (void)call, (void)result;
    abort(); /* there is memory for it */
}

/* Who has a place gives it back. */
int timers_complete(struct node *node, fl_op *op, struct space **ret_place, struct problem *problem)
{
    (void)node;
    if (op->timer.ns.size == 4)
        return problem_set(problem, 429, "namespace-full", NULL, "it is full");
    *ret_place = &fuzz.space;
    fuzz.space.coming++;
    return 0;
}

void place_give(const struct node *node, struct space **place)
{
    (void)node;
    if (*place)
        (*place)->coming--;
    *place = NULL;
}

int timers_problem(const struct node *node, const fl_op *op, struct problem *problem)
{
    (void)node;
    return problem_of_result(problem, op->result);
}

/* --- The server --------------------------------------------------------------------------------------------------- */

static void on_head(http_request *request)
{
    struct call *call = calloc(1, sizeof *call);
    if (!call)
        abort();
    call->request = request;
    call->worker = &fuzz.worker;
    request->arg = call;
    fuzz.batches++;
    batch_begin(call);
}

static void on_handle(http_request *request)
{
    (void)request;
    abort(); /* a batch takes its body as it comes */
}

static size_t write_problem(int status, const char *what, char *out, size_t size)
{
    return (size_t)snprintf(out, size, "%d %s", status, what);
}

static void start(unsigned ways, uint32_t luck)
{
    static const struct http_handlers handlers = {on_head, on_handle, write_problem};
    static fl_wall_clock wall = {wall_us};
    struct sockaddr_in peer = {.sin_family = AF_INET};
    int pair[2];
    memset(&fuzz, 0, sizeof fuzz);
    fuzz.ways = ways;
    fuzz.luck = luck;
    fuzz.node = (struct node){.shards = fuzz.shards, .shard_count = SHARDS, .clock = &wall, .owner = &fuzz.api};
    fuzz.api = (struct api){.node = &fuzz.node, .config = {.max_body = LINE_MOST, .max_payload = LINE_MOST / 2}};
    fuzz.worker.node = &fuzz.node;
    fuzz.worker.owner = &fuzz.here;
    for (uint32_t i = 0; i < SHARDS; i++) {
        fuzz.shards[i].number = i;
        fuzz.shards[i].worker = &fuzz.worker;
        fuzz.end[i] = &fuzz.first[i];
    }
    fl_virtual_clock_init(&fuzz.clock, 1000000000);
    fl_loop_config loop_config = {.clock = &fuzz.clock.clock};
    struct http_config config = {.handlers = &handlers, .max_head = 1024, .max_url = 256, .max_body = 512};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) < 0 || fl_loop_new(&loop_config, &fuzz.loop) < 0)
        abort();
    config.loop = fuzz.worker.loop = fuzz.loop;
    if (http_server_new(&config, &fuzz.http) < 0)
        abort();
    fuzz.fd = pair[1];
    http_connection_open(fuzz.http, pair[0], (const struct sockaddr *)&peer, sizeof peer);
}

static void read_answer(void)
{
    char taken[4096];
    ssize_t n;
    while ((n = recv(fuzz.fd, taken, sizeof taken, MSG_DONTWAIT)) > 0)
        add(&fuzz.answer, taken, (size_t)n);
}

static bool turn(void)
{
    bool busy = false;
    int r = fl_loop_run_once(fuzz.loop, false);
    assert(r == 0);
    (void)r;
    for (uint32_t i = 0, first = below(SHARDS); i < SHARDS; i++) {
        uint32_t shard = (first + i) % SHARDS;
        if (fuzz.first[shard] && below(3) == 0)
            answer_one(shard);
        busy |= fuzz.first[shard] != NULL;
    }
    if (fuzz.schedule_count > 0 && below(3) == 0)
        answer_some_schedule();
    return busy || fuzz.schedule_count > 0;
}

static void finish(void)
{
    for (int quiet = 0; quiet < 20; quiet++) {
        if (turn())
            quiet = 0;
        if (!(fuzz.ways & LEAVES))
            read_answer();
    }
    if (!(fuzz.ways & LEAVES))
        close(fuzz.fd);
    for (int i = 0; i < 5; i++)
        turn();
    http_server_free(fuzz.http);
    fl_loop_free(fuzz.loop);
    free(fuzz.schedules);
}

/* --- The client --------------------------------------------------------------------------------------------------- */

static bool send_all(const char *data, size_t size)
{
    while (size > 0) {
        size_t part = fuzz.ways & LATE ? 1 + below(40) : size;
        ssize_t n = send(fuzz.fd, data, part < size ? part : size, MSG_NOSIGNAL);
        if (n > 0) {
            data += n;
            size -= (size_t)n;
        } else if (n < 0 && errno != EAGAIN) {
            return false;
        }
        turn();
        if (!(fuzz.ways & READS_LATE))
            read_answer();
    }
    return true;
}

static void put_chunked(struct text *out, const char *body, size_t size)
{
    char head[32];
    while (size > 0) {
        size_t part = 1 + below(100);
        part = part < size ? part : size;
        int n = snprintf(head, sizeof head, "%zx\r\n", part);
        add(out, head, (size_t)n);
        add(out, body, part);
        add(out, "\r\n", 2);
        body += part;
        size -= part;
    }
    add(out, "0\r\n\r\n", 5);
}

static void send_batch(const char *body, size_t size)
{
    struct text out = {0};
    char head[200];
    int n = snprintf(head, sizeof head,
                     fuzz.ways & CHUNKED
                         ? "POST /v1/batch HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
                         : "POST /v1/batch HTTP/1.1\r\nHost: localhost\r\nContent-Length: %zu\r\n\r\n",
                     size);
    add(&out, head, (size_t)n);
    if (fuzz.ways & CHUNKED)
        put_chunked(&out, body, size);
    else
        add(&out, body, size);
    if (fuzz.ways & LEAVES) {
        send_all(out.data, (size_t)n + below((uint32_t)(out.size - (size_t)n) + 1));
        close(fuzz.fd);
    } else {
        bool sent = send_all(out.data, out.size);
        assert(sent);
        (void)sent;
    }
    free(out.data);
}

/* The lines of the answer. */
static struct text take_lines(void)
{
    static const char good[] = "HTTP/1.1 200 ";
    struct text lines = {0};
    struct http_body chunks = {.framing = HTTP_CHUNKED};
    assert(fuzz.answer.size > sizeof good && memcmp(fuzz.answer.data, good, sizeof good - 1) == 0);
    char *at = memmem(fuzz.answer.data, fuzz.answer.size, "\r\n\r\n", 4), *end = fuzz.answer.data + fuzz.answer.size;
    assert(at);
    at += 4;
    enum http_body_step r = HTTP_BODY_MORE;
    while (at < end && r != HTTP_BODY_END) {
        size_t used;
        fl_bytes piece = {0};
        r = http_body_next(&chunks, at, (size_t)(end - at), &used, &piece);
        assert(r != HTTP_BODY_BAD);
        add(&lines, piece.data, piece.size);
        at += used;
    }
    assert(r == HTTP_BODY_END && at == end);
    return lines;
}

static size_t count_lines(const char *body, size_t size)
{
    size_t count = 0;
    bool blank = true;
    for (size_t i = 0; i < size; i++) {
        if (body[i] == '\n') {
            count += !blank;
            blank = true;
        } else if (body[i] != ' ' && body[i] != '\t' && body[i] != '\r') {
            blank = false;
        }
    }
    return count + !blank;
}

static void check_lines(const struct text *lines, size_t count)
{
    static const char made[] = "{\"ok\":true,\"id\":\"", done[] = "{\"ok\":true}\n",
                      bad[] = "{\"ok\":false,\"problem\":{";
    for (size_t at = 0; at < lines->size; count--) {
        const char *line = lines->data + at, *line_end = memchr(line, '\n', lines->size - at);
        assert(count > 0 && line_end);
        size_t size = (size_t)(line_end - line) + 1;
        assert((size == sizeof done - 1 && memcmp(line, done, size) == 0) ||
               (size > sizeof bad &&
                (memcmp(line, made, sizeof made - 1) == 0 || memcmp(line, bad, sizeof bad - 1) == 0)));
        at += size;
    }
    assert(count == 0);
}

/* Returns the lines of the answer; none if the client leaves. */
static struct text run(unsigned ways, uint32_t luck, const char *body, size_t size, uint32_t digests[SHARDS])
{
    struct text lines = {0};
    start(ways, luck);
    send_batch(body, size);
    finish();
    assert(fuzz.batches == 1 && fuzz.space.coming == 0);
    if (!(ways & LEAVES))
        lines = take_lines();
    memcpy(digests, fuzz.digests, sizeof fuzz.digests);
    free(fuzz.answer.data);
    return lines;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    uint32_t digests[2][SHARDS];
    if (size < 2)
        return 0;
    const char *body = (const char *)bytes + 2;
    size -= 2;
    struct text once = run(0, 1, body, size, digests[0]);
    check_lines(&once, count_lines(body, size));
    struct text cut = run(bytes[0] | LATE, bytes[1], body, size, digests[1]);
    if (!(bytes[0] & LEAVES)) {
        assert(cut.size == once.size && (cut.size == 0 || memcmp(cut.data, once.data, cut.size) == 0));
        assert(memcmp(digests[0], digests[1], sizeof digests[0]) == 0);
    }
    free(once.data);
    free(cut.data);
    return 0;
}
