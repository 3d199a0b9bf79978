/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_ENGINE_INTERNAL_H
#define FOLIOT_ENGINE_INTERNAL_H

/* What the files of the engine share. */

#include "engine/engine.h"
#include "engine/state.h"

static inline bool same_bytes(fl_bytes a, fl_bytes b)
{
    return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}

static inline bool key_before(fl_key a, fl_key b)
{
    return a.at_us != b.at_us ? a.at_us < b.at_us : a.seq < b.seq;
}

/* Whether the front has passed it. */
static inline bool behind_front(const fl_engine *e, fl_key key)
{
    return !key_before(e->front[key.seq & 1], key);
}

static inline uint64_t lock_of_seq(uint64_t seq)
{
    return seq; /* below 2^56 */
}

static inline uint64_t lock_of_dead(uint64_t seq)
{
    return seq | (uint64_t)1 << 62;
}

static inline uint64_t lock_of_name(uint64_t hash)
{
    return hash | (uint64_t)1 << 63;
}

/* --- engine.c */
void fl__alarm_set(fl_engine *e, struct alarm *alarm, uint64_t delay_ns);
void fl__engine_submit_request(fl_engine *e, fl_store_request *request, enum fl_store_op op,
                               void (*done)(fl_store_request *));
bool fl__engine_answered(fl_engine *e,
                         fl_store_request *request); /* each `done` calls it first; false: return at once */
void fl__engine_restart(fl_engine *e, const char *why);
void fl__engine_trouble(fl_engine *e, int result, const char *message);
int fl__engine_refusal(const fl_engine *e);
void fl__engine_flush_soon(fl_engine *e);
uint64_t fl__engine_random(fl_engine *e);

void fl__engine_release(fl_engine *e);

/* --- time.c */
int64_t fl__engine_read_clock(const fl_engine *e);
void fl__engine_look_at_clock(fl_engine *e);
int64_t fl__engine_now(fl_engine *e);
int64_t fl__engine_filing_now(fl_engine *e);
/* Reacts to a clock that was set back, even if it was set forward again since: rows may have been filed by the earlier
 * time. */
void fl__engine_follow_clock(fl_engine *e);
/* Watches for settings of the clock. Without this the engine notices them when it has work, at the latest at the next
 * renewal. */
void fl__engine_watch_clock(fl_engine *e);

/* --- own.c */
bool fl__engine_may_fire(fl_engine *e);
void fl__engine_claim(fl_engine *e);
void fl__engine_renew_or_claim(fl_engine *e);

/* --- ops.c */
void fl__ops_found(fl_engine *e, struct work *work, const fl_store_want *want);
void fl__ops_written(fl_engine *e, struct work *work, const struct write_entry *entry, int result);
void fl__ops_created(fl_engine *e, const struct write_entry *entry, int result);
void fl__ops_answer(fl_engine *e, fl_batch *batch, fl_op *op, int result);
void fl__ops_deliver(fl_engine *e);
void fl__ops_take_in(fl_engine *e, const fl_row *row, uint8_t flags);
void fl__work_end(fl_engine *e, struct work *work);
struct work *fl__work_new(fl_engine *e, enum work_kind kind);
void fl__ops_refuse_all(fl_engine *e, int result);
void fl__ops_begin_early(fl_engine *e);
void fl__ops_applied(fl_engine *e, struct work *work, const fl_row *row);
void fl__ops_not_applied(fl_engine *e, struct work *work);
bool fl__ops_let_go(fl_engine *e, fl_key key);
int fl__ops_file_new(fl_engine *e, fl_op *op, struct write_entry **ret);
int fl__ops_check_content(const fl_engine *e, const fl_durable *timer);
int fl__ops_check_group(const fl_engine *e, const fl_batch *batch);
void fl__ops_apply_update(const fl_op *op, fl_durable *timer);
int64_t fl__ops_filing_time(fl_engine *e, int64_t due_us);
void fl__ops_answer_work(fl_engine *e, struct work *work, int result);
/* Copies bytes that belong to the store, so that they are valid until the batch is done. */
bool fl__ops_own_bytes(fl_batch *batch, fl_bytes *bytes);
int fl__ops_give_timer(struct work *work, const fl_durable *timer);
void fl__ops_release_row(fl_engine *e, struct work *work);
void fl__ops_finish(fl_engine *e, struct work *work, int result);
int fl__ops_hold(fl_engine *e, fl_key key);

/* --- decide.c */
int fl__ops_create_nameless(fl_engine *e, fl_batch *batch, fl_op *op);
void fl__ops_hold_and_decide(fl_engine *e, struct work *work, const fl_row *row, const fl_row *settled);
bool fl__ops_is_in(const fl_op *op, fl_bytes ns);

/* --- dead.c, submit.c */
void fl__ops_begin_dead(fl_engine *e, fl_batch *batch, fl_op *op);
void fl__ops_look_for(fl_engine *e, struct work *work);

/* --- group.c */
struct atomic_group *fl__group_new(fl_batch *batch); /* NULL: no memory */
int fl__group_file(fl_engine *e, struct atomic_group *group);
void fl__group_answer(fl_engine *e, struct atomic_group *group, int result);
void fl__group_refuse(fl_engine *e, fl_batch *batch, int result);
void fl__group_count(fl_engine *e, const struct atomic_group *group);
void fl__group_applied(fl_engine *e, const struct atomic_group *group, const struct write_entry *head);
void fl__group_hold(fl_engine *e, struct atomic_group *group);
void fl__group_let_go(fl_engine *e, struct atomic_group *group);
void fl__group_want(const struct atomic_group *group, fl_store_want *wants);
void fl__group_found(fl_engine *e, const struct atomic_group *group, const fl_store_want *wants);
bool fl__group_has(const struct atomic_group *group, uint64_t seq);

/* --- list.c */
void fl__lists_go_on(fl_engine *e);

/* --- lock.c */
bool fl__lock(fl_engine *e, struct lock *lock, uint64_t key, void (*granted)(fl_engine *, struct lock *));
void fl__unlock(fl_engine *e, struct lock *lock);
bool fl__is_locked(const fl_engine *e, uint64_t key);

/* --- write.c */
struct write_entry *fl__write_add(fl_engine *e, size_t bytes, fl_store_change **ret_change, unsigned char **ret_bytes);
bool fl__write_open_group(fl_engine *e); /* false: no memory */
void fl__write_close_group(fl_engine *e, bool whole);
struct find *fl__find_new(fl_engine *e, size_t count);
void fl__find_want(const struct work *work, fl_store_want *ret);
uint64_t fl__seq_take(fl_engine *e, bool retried); /* 0: none is free now */
bool fl__write_files_under(const fl_engine *e, uint64_t window);
void fl__flush(fl_engine *e);
void fl__flush_all(fl_engine *e); /* all queued writes, however many are under way */
void fl__writes_free(fl_engine *e);

/* --- doubt.c */
void fl__doubt(fl_engine *e, struct work *work);
void fl__doubt_end(fl_engine *e, struct work *work);
bool fl__doubt_about(const fl_engine *e, uint64_t seq);
void fl__doubt_take_in(fl_engine *e, const fl_row *row);
void fl__doubt_unsure(fl_engine *e, fl_key key, uint32_t space);
void fl__doubt_found(fl_engine *e, uint64_t seq);
void fl__doubt_forget(fl_engine *e, uint64_t seq);
void fl__doubt_not_found(fl_engine *e, const fl_store_want *want);
void fl__doubts_ask(fl_engine *e);
void fl__doubts_ask_later(fl_engine *e);

/* --- memory.c */
int fl__memory_insert(fl_engine *e, const fl_row *row, uint8_t flags);
uint32_t fl__memory_flight(fl_engine *e, const fl_row *row); /* a flight that is parked; 0: no memory */
struct item *fl__memory_find(fl_engine *e, fl_key key);
void fl__memory_remove(fl_engine *e, struct item *item); /* removes it from span and wheel, and frees it */
void fl__memory_take(fl_engine *e, struct item *item);   /* removes it from its span; it has left the wheel */
void fl__memory_free_item(fl_engine *e, struct item *item);
void fl__memory_evict(fl_engine *e, fl_key from);
bool fl__memory_arm(fl_engine *e, int64_t now_us); /* false: call it again */
void fl__memory_follow(fl_engine *e, int64_t now_us);
int64_t fl__memory_reach_us(const fl_engine *e, int64_t now_us);

/* Takes at most `limit` items that are due out of a wheel, into e->due. */
size_t fl__memory_poll(fl_engine *e, int kind, int64_t now_us, size_t limit);

/* When the earliest item of a wheel is due; INT64_MAX: the wheel is empty. */
int64_t fl__memory_next_armed_us(const fl_engine *e, int kind);

/* Replaces a wheel by an empty one. Returns 0 or FL_NO_MEMORY. */
int fl__memory_fresh_wheel(fl_engine *e, int kind, int64_t start_us);
int64_t fl__memory_arm_next_us(const fl_engine *e);
int64_t fl__memory_next_unarmed_us(const fl_engine *e);
uint32_t fl__item_space(const struct item *item);
void fl__item_row(const fl_engine *e, const struct item *item, fl_row *ret);

void fl__memory_drop_span(fl_engine *e, struct span *span);
/* Spans are dropped late, so that one that is filled and emptied in turn keeps its array. */
void fl__memory_drop_empty_spans(fl_engine *e);
/* Closes the gaps. */
void fl__memory_pack_span(struct span *span);
int64_t fl__memory_span_begin_us(const struct span *span);

/* --- spaces.c */
int fl__space(fl_engine *e, fl_bytes ns, uint32_t *ret);
void fl__count(fl_engine *e, uint32_t space, int64_t more);
void fl__count_none(fl_engine *e);
void fl__spaces_free(struct spaces *spaces);

/* --- room.c */
bool fl__memory_is_filled(const fl_engine *e, unsigned percent);
bool fl__memory_room(fl_engine *e, fl_key key);
fl_key fl__memory_load_room(fl_engine *e, fl_key key);
int fl__memory_rebuild(fl_engine *e);
void fl__memory_clear(fl_engine *e);

/* --- flight.c */
uint32_t fl__flight_new(fl_engine *e, struct item *item, enum flight_state state); /* 0: no memory */
uint32_t fl__flight_find(const fl_engine *e, uint64_t seq);
bool fl__flight_done(const fl_engine *e, uint64_t seq);
void fl__flight_end(fl_engine *e, uint32_t index);
void fl__flight_forget(fl_engine *e, uint32_t index);
struct item *fl__flight_recall(fl_engine *e, uint32_t index);
void fl__flight_late(fl_engine *e, uint32_t index);
uint32_t fl__flight_next_late(fl_engine *e, int kind);
uint64_t fl__flight_token(const fl_engine *e, uint32_t index);
uint32_t fl__flight_of_token(const fl_engine *e, uint64_t token);

/* --- lane.c */
void fl__lanes_init(struct lanes *lanes);
void fl__lanes_free(struct lanes *lanes);
void fl__lanes_clear(fl_engine *e);                              /* forgets which timers are parked */
void fl__lanes_read_again(fl_engine *e, bool all);               /* false: only lanes without flights */
void fl__lane_leave(fl_engine *e, struct flight *flight);        /* if it is in one */
void fl__lane_stop_waiting(fl_engine *e, struct flight *flight); /* if it waits; it stays in its lane */
bool fl__lane_withdraw(fl_engine *e, uint32_t index);            /* false: it has begun */
void fl__lane_not_called(fl_engine *e, struct flight *flight);
int fl__lane_filed(fl_engine *e, uint64_t window); /* there are rows under the window of a lane */
bool fl__is_lane(uint64_t window);
bool fl__is_lane_time(int64_t at_us);
fl_key fl__lane_key(uint32_t lane, uint64_t seq);
uint64_t fl__lane_window(uint32_t lane);
uint32_t fl__lane_of_time(int64_t at_us);
int64_t fl__lanes_begin_us(void); /* times from here on belong to lanes and never come */
void fl__lanes_read(fl_engine *e);
bool fl__lane_next_window(const fl_engine *e, uint64_t after, uint64_t *ret);
size_t fl__lanes_empty(fl_engine *e, struct fl_store_span *spans, size_t most);

/* --- load.c */
void fl__engine_load(fl_engine *e);
void fl__load_if_room(fl_engine *e);
bool fl__load_has_room(const fl_engine *e);
int64_t fl__load_horizon_us(const fl_engine *e, int64_t now_us);
void fl__load_hint(fl_engine *e, int64_t at_us);
void fl__load_sooner(fl_engine *e);

/* --- windows.c */
int fl__windows_reserve(fl_engine *e, size_t more);
void fl__windows_add(fl_engine *e, uint64_t window);
void fl__windows_remove(fl_engine *e, uint64_t window);
uint64_t fl__window_for(fl_engine *e, int64_t at_us);
void fl__windows_inherit(fl_engine *e, uint64_t window);
bool fl__window_in_parts(const fl_engine *e, uint64_t window);
size_t fl__window_place(const fl_engine *e, uint64_t window);
void fl__windows_open(fl_engine *e, int64_t now_us);
/* Opens a window, because its parts are cheaper to search. Without memory, the window stays as it is. */
void fl__window_split(fl_engine *e, uint64_t window);
void fl__windows_refile(fl_engine *e, uint64_t window);
/* The first window whose rows are to be filed into its parts. */
bool fl__window_to_refile(const fl_engine *e, uint64_t *ret);

/* --- fire.c */
void fl__engine_fire(fl_engine *e);
void fl__fire_soon(fl_engine *e);
bool fl__fire_has_room(const fl_engine *e, int kind);
int64_t fl__item_due(const fl_engine *e, const struct item *item);

/* Tells the program that a timer has ended other than by a settlement of its dispatcher. */
void fl__tell_end(fl_engine *e, const struct item *item, enum fl_ended how, fl_bytes reason);
/* The timer of a flight is no longer pending. A timer that is perhaps not in the store was never counted. */
void fl__flight_gone(fl_engine *e, uint32_t index);

/* --- settle.c */
int fl__retry_check(const fl_retry *retry);
void fl__settle_count(fl_engine *e, const struct work *work);
void fl__settle_continue(fl_engine *e, struct work *work);
void fl__settle_applied(fl_engine *e, struct work *work, const fl_row *row);
void fl__settle_written(fl_engine *e, struct work *work, const struct write_entry *entry, int result);
void fl__settle_begin(fl_engine *e, uint32_t index, const fl_settlement *settlement, enum work_kind kind,
                      uint32_t lane);
void fl__settle_expired(fl_engine *e, const fl_row *row);
/* Ends an attempt after which nothing is written. */
void fl__settle_end(fl_engine *e, uint32_t index, const fl_settlement *settlement);

/* --- progress.c */
void fl__record(fl_engine *e);
void fl__delete(fl_engine *e);
void fl__delete_key(fl_engine *e, fl_key key);
void fl__delete_keys(fl_engine *e);
void fl__progress_set_back(fl_engine *e);
int fl__progress_now(fl_engine *e, fl_progress *ret);
void fl__progress_keep(fl_engine *e, fl_key key);
bool fl__settled(const fl_engine *e, fl_key key);
bool fl__progress_was_begun(const fl_engine *e, uint64_t seq);
void fl__progress_settle(fl_engine *e, uint64_t seq);
void fl__progress_move_fronts(fl_engine *e);

/* --- history.c */
int fl__history_take_over(fl_engine *e, const fl_store_request *request);
void fl__history_send(fl_engine *e, fl_history_change *ret); /* with a record that is sent now */
void fl__history_sent(fl_engine *e, int result);             /* that record is answered */
bool fl__history_is_over(fl_engine *e);                      /* there is something to drop */
void fl__history_clear(fl_engine *e);
void fl__history_free(fl_engine *e);

bool fl__history_copy_row(struct arena *arena, const fl_history_row *row, fl_history_row *ret);
uint64_t fl__history_keep_of(const fl_engine *e, const struct space *space);
/* Rows before this time are older than `keep_us`. */
int64_t fl__history_kept_from(fl_engine *e, uint64_t keep_us);

/* --- history_ask.c */
void fl__history_go_on(fl_engine *e);

#endif
