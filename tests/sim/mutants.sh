#!/bin/sh
# Shows that the simulation finds bugs: puts one at a time into a copy of a source file, links the simulation with it, and
# lives until a promise is broken. Usage: mutants.sh SOURCE-DIR BUILD-DIR [NAME...]
#
# A mutant is a name, a file and expressions for sed, with `/;s/` between them. An expression that changes nothing is an error:
# the code has moved on, and the mutant must follow. This holds for all mutants, also if only some are asked for, so that the short run
# reports it. Only that file is compiled anew: BUILD-DIR has everything else. Bugs that need more luck than ten thousand lives bring have
# tests of their own, in tests/engine.
set -eu
source=$(cd "$1" && pwd)
build=$(cd "$2" && pwd)
shift 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

mutants() {
    cat <<'END'
version-not-checked src/store/memory/memory.c s/request->version != book->version || request->version == 0/request->version == 0/
version-checked-before-the-commit src/store/memory/memory.c s/^        carry_out(a, request);/        { if (a->scheduled \&\& request->op == FL_STORE_WRITE \&\& request->version == a->book->version) request->store_data = a; else carry_out(a, request); }/;s/^    if (request->op == FL_STORE_LOAD \&\& request->result == 0 \&\& !fl__memory_store_load_go_on/    if (request->store_data == a) { request->store_data = NULL; request->version = a->book->version; carry_out(a, request); }\n&/
delete-what-is-kept src/engine/progress.c s/bool kept = kept_in(e, window);/bool kept = ((void)kept_in(e, window), false);/
unknown-is-refused src/engine/write.c s/fl__ops_written(e, entry->work, entry, request->result)/fl__ops_written(e, entry->work, entry, request->result == FL_OUTCOME_UNKNOWN ? FL_STORE_UNAVAILABLE : request->result)/
pending-writes-not-kept src/engine/progress.c s/keep_written(e, e->sent, &count) < 0 ||//
flights-not-kept src/engine/progress.c s/if (keep_flights(e, &count) < 0 ||/if (/
front-passes-until src/engine/progress.c s/int64_t to_us = e->wall_us < e->until.at_us ? e->wall_us : e->until.at_us;/int64_t to_us = e->wall_us;/
front-passes-the-wheel src/engine/progress.c s/next_us < to_us ? next_us : to_us/((void)next_us, to_us)/
front-passes-what-is-in-no-wheel src/engine/progress.c s/    if (e->armed_us < to_us)/    if (false)/
found-not-counted src/engine/doubt.c s/    fl__count(e, unsure->space, 1);//
old-counts-kept src/engine/engine.c s/^    fl__count_none(e);$//
claim-not-counted src/engine/own.c s/        fl__count(e, space, (int64_t)request->claim.counts\[i\].rows);//
cancelled-counts src/engine/decide.c s/    work->adds = -1;//
replaced-twice-gone src/engine/ops.c s/work->adds != 0 || ended)/work->adds != 0)/
hold-ignored src/engine/fire.c s/flight->item->flags & ITEM_HELD/false/
waiting-is-not-withdrawn src/engine/ops.c s/(f->state == FLIGHT_WAITING \&\& !fl__lane_withdraw(e, flight))/false/
parked-is-never-read src/engine/lane.c s/return lane->unread \&\& !lane->closed \&\& .*/return (void)e, (void)lane, false;/
called-twice src/engine/lane.c s/ || fl__flight_find(e, row->key.seq))$/)/
lane-dropped-with-rows src/engine/lane.c s/    if (empty \&\& !filing)/    if (!filing)/
skipped-stays src/engine/fire.c s/^    fl__settle_end(e, index, &(fl_settlement){.result = FL_DONE});/    fl__flight_gone(e, index);fl__flight_end(e, index);/
split-with-parts-forgotten src/engine/windows.c s/ || has_parts(e, e->split\[i\])//
retry-loses-row src/engine/settle.c s/change->put = &entry->row;/change->put = NULL;/
claim-ignored src/engine/own.c s/ \&\& fl_loop_update_now(engine->loop) < engine->claim_end_ns//
clock-not-followed src/engine/fire.c s/if (e->clock_us < now_us) {/if (false) {/
refiled-parts-forgotten src/engine/windows.c s/add_parts(e, request, UINT64_MAX);/(void)0;/
kept-by-owner-before-forgotten src/engine/progress.c s/return behind_front(e, key) \&\& !kept_before(e, key.seq)/return behind_front(e, key)/
loaded-twice src/engine/load.c s/ \&\& !fl__settled(e, row->key) \&\&$/ \&\& (true ||/;s/^  *!fl__flight_find(e, row->key.seq)) {/!fl__flight_find(e, row->key.seq))) {/
writes-not-held src/engine/write.c s/ \&\& !e->set_back \&\& !e->retreat)/)/
outdated-load-taken src/engine/load.c s/return key_before(e->until, request->load.from);/return (void)e, (void)request, false;/
set-forth-is-forgotten src/engine/time.c s/        e->wall_us = now_us;/&e->set_back = false;/
lost-is-acknowledged src/engine/write.c s/fl__ops_written(e, entry->work, entry, request->result)/fl__ops_written(e, entry->work, entry, request->result == FL_SHARD_LOST ? 0 : request->result)/
absent-is-guessed src/store/memory/memory.c s/return !found \&\& fl_store_hash/return fl_store_hash/
gone-back-is-not-noticed src/store/memory/owners.c s/return a->claimed \&\& request->op != FL_STORE_CLAIM/return false \&\& a->claimed/
lost-is-ignored src/engine/engine.c s/if (request->result == FL_SHARD_LOST \&\& (e->state/if (false \&\& (e->state/
held-is-claimed src/store/memory/owners.c s/if (held \&\& !request->claim.force \&\& /if (false \&\& /
revision-not-checked src/engine/decide.c s/ \&\& op->timer.revision != row->key.seq;/ \&\& false;/
advance-repeated src/engine/settle.c s/    } else if (result == FL_OUTCOME_UNKNOWN) {/    } else if (result == FL_OUTCOME_UNKNOWN \&\& !work->group) {/
followers-forgotten src/engine/group.c s/^        fl__ops_take_in(e, &first.*/        ;/
followers-found-are-forgotten src/engine/group.c s/^            fl__doubt_take_in(e, &wants.*/            ;/
followers-not-counted src/engine/group.c s/^        fl__count(e, group->followers.*/        ;/
advance-keeps-the-payload src/engine/settle.c s/^    fl__ops_apply_update(op, &timer);/    timer.due_us = op->timer.due_us;/
history-told-twice src/store/memory/history.c s/(\*link)->row.seq == item->row.seq/false/
history-not-written-first src/engine/history_ask.c s/^    return !e->record_busy;/    return true;/
leave-ignored src/node/cluster.c s/                leave(c, i);/                continue;/
plans-differ src/node/cluster.c s/^        cluster_plan(plan.*/&if (c->config.incarnation % 3 == 0) plan[shards - 1] = self;/
plan-from-scratch src/node/cluster_view.c s/if (owners\[i\] >= 0 \&\& left\[owners\[i\]\] > 0)/if (false)/
plan-moves-too-much src/node/cluster_view.c s/have\[i\] > have\[best\]/have[i] < have[best]/
share-is-rounded-up src/node/cluster_view.c s/share\[i\] = shards \/ (uint32_t)count;/share[i] = shards \/ (uint32_t)count + 1;/
the-dead-are-members src/node/cluster_view.c s/if (is_gone(c, &all\[i\]))/if ((void)is_gone, false)/
end-of-lease-not-awaited src/node/cluster.c s/(uint64_t)\(holder->\)\{0,1\}left\(_us\)\{0,1\} < next/false/
look-forgotten src/node/cluster.c s/        c->again = true;/        ;/
left-and-not-looked src/node/cluster.c s/    c->config.moved(c->config.arg);/    ;/
what-was-left-is-kept src/node/cluster.c s/    c->here\[shard\] = c->asking.*;/    return true;/
replaced-goes-on src/node/cluster.c s/bool replaced = .*;/bool replaced = false;/
stays-on-the-list src/node/cluster.c s/.claim_us = c->stopping ? 0 : c->config.claim_us/.claim_us = c->config.claim_us/
timers-lose-their-policy src/node/wire.c s/    MEMBER(NUMBER_64, fl_durable, retry.initial_us),//
trouble-ends-it src/node/cluster.c s/^    plan_meeting(c);/    if (request->result == 0) plan_meeting(c);/
leased-while-withdrawn src/node/pull_items.c s/    if (!item_enter(item, ITEM_WAITS, ITEM_WITHDRAWN))/    if (item_state(item) != ITEM_WAITS)/
slot-given-twice src/node/pull_items.c s/^    pull->free_slots\[pull->free_count++\] = item->slot;/&if (item->slot % 2) pull->free_slots[pull->free_count++] = item->slot;/
settled-elsewhere src/node/pull_items.c s/    settlement.token = item->firing.token;/    settlement.token = 0;/
pause-does-not-hold-leases src/node/pull.c s/ \&\& !space_is_paused(worker->node, item->parcel->space)//
serial-not-checked src/node/pull_leases.c s/ || item->serial != ack->serial//
extend-ignored src/node/pull_leases.c s/^    item->lease = lease;$//
extend-forgets src/node/pull_leases.c s/^        return lease_extend(worker, item, ack->after_us);/        return true;/
release-counts src/node/pull_leases.c s/\[ACK_RELEASE\] = FL_LATER/[ACK_RELEASE] = FL_FAILED/
retry-is-done src/node/pull_leases.c s/\[ACK_RETRY\] = FL_FAILED/[ACK_RETRY] = FL_DONE/
dead-is-retried src/node/pull_leases.c s/\[ACK_DEAD\] = FL_DEAD/[ACK_DEAD] = FL_FAILED/
after-ignored src/node/pull_leases.c s/\.at_us = later ? /.at_us = false \&\& later ? /
expired-is-forgotten src/node/pull_leases.c s/^        item_settle(worker, item, expired, now_us);/        (void)expired, (void)now_us;/
expired-is-done src/node/pull_leases.c s/{.result = FL_EXPIRED,/{.result = FL_DONE,/
max-ignored src/node/pull.c s/count = left < asker->max ? left : asker->max;/count = left;/
not-purged src/node/pull.c s/        if (!item || item->shard != shard)/        if (!item || item->shard != shard || i % 2)/
lease-of-another-server src/node/call_kinds.c s/^    wire_put_number(out, leased->slot);/    wire_put_number(out, leased->slot + 1);/
lease-answer-dropped src/node/call_kinds.c s/            call->asker.write(&call->asker.out, &leased, call->asker.count++);/            call->asker.count++;/
ack-bits-mixed src/node/call_kinds.c s/wire->at\[i \/ 8\] >> i % 8 \& 1/wire->at[i \/ 8] \& 1/
acks-guessed src/node/acks.c s/^        ack->known = false;/        ack->known = true;/
begun-without-asking src/node/deliver.c s/        !fl_engine_begin(shard->engine, attempt->firing.token, true))/        (!fl_engine_begin(shard->engine, attempt->firing.token, true) \&\& false))/
paused-begins src/node/deliver.c s/ timer_is_paused(shard->worker->node, &attempt->firing.timer) ||$/ (false \&\& timer_is_paused(shard->worker->node, \&attempt->firing.timer)) ||/
paused-is-delivered src/node/deliver.c s/        if (pauses \&\& pause_takes(shard, &firings\[i\], now_us)) {/        if (false) {/
failure-is-success src/node/deliver.c s/\.result = attempt->result, .at_us/.result = attempt->result == FL_FAILED ? FL_DONE : attempt->result, .at_us/
withdrawn-is-counted src/node/deliver.c s/    if (!shard->worker->node->ports->cancel(shard->worker, attempt))/    shard->delivering++;&/
retry-after-ignored src/node/deliver.c s/\.at_us = attempt->at_us, .reason/.at_us = 0, .reason/
kept-calls-forgotten src/node/shards.c s/^        call_return(kept);/        ;/
inside-not-counted src/node/shards.c s/^        shard->inside++;/        ;/
purge-forgotten src/node/shards.c s/^    pull_purge(worker, shard_of_purge(tour));/    (void)worker, (void)tour;/
never-let-go src/node/shards.c s/^    fl_engine_go(shard->engine);/    ;/
moved-is-final src/node/shard_calls.c s/return call->result == LINK_MOVED || /return /
unknown-is-retried src/node/shard_calls.c s/ || !call->remote.sent || only_reads(call);/ || true;/
unknown-is-unavailable src/node/shard_calls.c s/call->remote.sent ? FL_OUTCOME_UNKNOWN : call->result/FL_STORE_UNAVAILABLE/
line-out-of-order src/node/shard_calls.c s/    while (\*at \&\& (\*at)->number < call->number)/    while (false)/
followers-wait-for-ever src/node/shard_calls.c s/^        let_follow(line);/        (void)let_follow;/
cancelled-call-counts src/node/calls.c s/^        call->errand.home->under_way--;/        ;/
pause-lane-stays-closed src/node/pause.c s/fl_engine_close_lane(shard->engine, lane_of_pause(space), on);/if (on) fl_engine_close_lane(shard->engine, lane_of_pause(space), on);/
pause-not-told src/node/settings.c s/^        servers_tell_settings(change->asker, space_name(change->space));/        ;/
pause-not-read src/node/settings_value.c s/^    to->pauses = from->pauses;/    (void)from;/
changes-stall src/node/settings.c s/^    if (space->changes)$/    if (false)/
settings-not-known src/node/settings_load.c s/^    atomic_store(&node->settings_known, true);/    ;/
counts-drift src/node/spaces.c s/^        atomic_fetch_add_explicit(&space->pending, more, memory_order_relaxed);/        atomic_fetch_add_explicit(\&space->pending, more < 0 ? 0 : more, memory_order_relaxed);/
counts-of-another src/node/shards.c s/^    space_counted(shard->worker->node, space, more);/    if (shard->number > 0) space_counted(shard->worker->node, space, more);/
not-ready-when-linked src/node/links.c s/^        cluster_ready(node->cluster);/        ;/
cursor-falls-back src/node/schedule.c s/wire_put_signed(out, s->cursor_us);/wire_put_signed(out, s->cursor_us - 1);/
catch-up-is-short src/node/schedule.c s/s->missed == MISSED_ALL ? SCHEDULE_MISSED_MOST/s->missed == MISSED_ALL ? 1/
last-is-skipped src/node/schedule.c s/s->missed == MISSED_LAST ? 1/s->missed == MISSED_LAST ? 0/
grace-ignored src/node/schedule.c s/now_us - (int64_t)grace_us - 1/now_us/
change-makes-up src/node/schedule.c s/^    else if (from_us > s->cursor_us .*/    else if (false)/
heir-repeats src/node/schedule.c s/^        s.cursor_us = old->cursor_us > now_us.*/        s.cursor_us = now_us;/;s/^        s.last_us = old->last_us;//
overlap-ignored src/node/schedule.c s/if (s->overlap == OVERLAP_ALLOW || !\*unsettled) {/if (true) {/
pause-of-schedule-ignored src/node/schedule.c s/return !s->paused \&\& !count/return !count/
next-forgotten src/node/schedule.c s/^        plan->due_us = next.at_us;/        plan->due_us = s->made > 3 ? FL_TIME_NEVER_US : next.at_us;/
unsettled-not-noted src/node/schedules.c s/^        noted.unsettled\[noted.unsettled_count++\] = .*/        (void)i;/
settled-is-guessed src/node/schedules.c s/^        if (result == 0)$/        if (result == 1)/
row-keeps-its-cursor src/node/schedules.c s/FL_OP_SET_DUE | FL_OP_SET_PAYLOAD,/FL_OP_SET_DUE,/
rate-forgotten src/node/settings_value.c s/to->max_rate = from->max_rate;/(void)0;/
spread-forgotten src/node/settings_value.c s/to->spread_us = from->spread_us;/(void)0;/
history-setting-forgotten src/node/settings_value.c s/to->history = from->history;/(void)0;/
change-resets-the-others src/node/settings.c s/settings_copy(stored, change->settings, change->keep)/settings_copy(stored, change->settings, 0)/
change-replaces-another src/node/settings.c s/\.flags = exists ? FL_OP_ONLY_THIS : FL_OP_ONLY_NEW/.flags = 0/
settings-not-read-at-first src/node/settings_load.c s/^        settings_take(here, &page->listing.found\[i\].timer);/        (void)here;/
rate-ignored src/node/pacing.c s/^    if (settings->max_rate == 0)/    if (true)/
put-off-for-ever src/node/deliver.c s/^        put_off(shard, attempt->firing.token, attempt->at_us);/        ;/
ended-attempt-still-counts src/node/deliver.c s/^    shard->delivering--;$/    ;/
pause-never-ends src/node/pause.c s/^    \*pause = (struct pause){0};$/    if (!on) *pause = (struct pause){0};/
pause-begins-too-late src/node/pause.c s/^        pauses->now.since_us = now_us;/        pauses->now.since_us = 0;/
schedule-parked-for-ever src/node/pause.c s/^    park(shard, space, pauses, token, now_us);/    ;/
count-begins-anew src/node/schedule.c s/    s->made = wire_number(wire);/    s->made = (wire_number(wire), 0);/
made-counts-twice src/node/schedule.c s/^    s->made++;/    s->made += 2;/
count-ignored src/node/schedule.c s/^    return s->count > 0 \&\& .*/    return (void)s, false;/
last-is-forgotten src/node/schedule.c s/^    s->last_us = wire_signed(wire);/    s->last_us = (wire_signed(wire), 0);/
queued-at-once src/node/schedule.c s/ \&\& (!unsettled || s->overlap == OVERLAP_ALLOW)) {/) {/
unsettled-forgotten src/node/schedule.c s/^    s->unsettled_count = (unsigned)wire_count(wire);/    wire_count(wire);/;s/^    for (unsigned i = 0; !wire->bad \&\& i < s->unsettled_count; i++) {/    for (unsigned i = 0; false; i++) {/
occurrences-of-the-advance-dropped src/node/schedules.c s/\.count = 1 + plan->count,/.count = 1 + (plan->count > 1),/
advance-refused-is-told src/node/schedules.c s/^    if (advance->ops\[0\].result == 0)$/    if (true)/
look-is-ignored src/node/schedules.c s/^            s->unsettled\[left++\] = s->unsettled\[i\];/            left = 0;/
acks-of-others-dropped src/node/call_kinds.c s/^        ack->known = i < bits.*/        ack->known = false \&\& i < bits;/
paused-namespace-occurs src/node/schedules.c s/if (pause_takes_schedule(.*/if (false) {/
END
}

# The command that makes a target in the build directory.
command_for() {
    ninja -C "$build" -t commands "$1" | tail -n 1
}

# Of the node, cluster.c, cluster_view.c and wire.c are in both simulations.
program_of() {
    case $1 in
    src/node/cluster.c | src/node/cluster_view.c | src/node/wire.c | src/store/* | src/engine/*) echo tests/sim/sim-lives ;;
    *) echo tests/sim/sim-nodes ;;
    esac
}

# What is made of a source file.
object_of() {
    case $(program_of "$1") in
    */sim-lives) object="\(libfoliot-durable\|tests/sim/libsim-world\)[^/]*/[._]*$(echo "$1" | tr / _).o" ;;
    *) object="src/server/libfoliot-server[^/]*/[._]*$(echo "${1#src/}" | tr / _).o" ;;
    esac
    ninja -C "$build" -t targets all | sed -n "s#^\($object\): .*#\1#p" | head -n 1
}

# Compiles the mutated file and links the simulation with it in place of the original.
make_mutant() {
    compile=$(command_for "$(object_of "$1")" | sed "s| -o [^ ]*| -o $work/mutant.o|; s| -MF [^ ]*| -MF $work/mutant.d|; s|[^ ]*/$1\$|$work/mutant.c|")
    link=$(command_for "$(program_of "$1")" | sed "s| -o [^ ]*| -o $work/mutant $work/mutant.o|")
    (cd "$build" && eval "$compile -Wno-error" && eval "$link")
}

live() {
    # shellcheck disable=SC3045 # where there is no such limit, it is not needed
    (ulimit -c 0 && LD_LIBRARY_PATH=$build exec timeout 600 "$work/mutant")
}

# Makes a copy of a file with the bug in it. False: one of the expressions changes nothing.
put_in() {
    cp "$source/$1" "$work/mutant.c"
    printf '%s\n' "$2" | sed 's|/;s/|/\
s/|g' | while IFS= read -r expression; do
        sed "$expression" "$work/mutant.c" >"$work/changed.c"
        ! cmp -s "$work/mutant.c" "$work/changed.c" || exit 1
        mv "$work/changed.c" "$work/mutant.c"
    done
}

# Whether the mutant is caught, in as many lives as the test has or as FOLIOT_LIVES says.
try() {
    put_in "$2" "$3"
    if ! make_mutant "$2" >"$work/log" 2>&1; then
        cat "$work/log"
        echo "$1: does not build"
    elif live >"$work/log" 2>&1; then
        echo "$1: NOT CAUGHT"
    elif ! grep -hoE 'seed 0x[0-9a-f]*: [^.]*|[Aa]ssertion.*' "$work/log" >"$work/reason"; then
        cat "$work/log"
        echo "$1: fails, but not by breaking a promise"
    else
        echo "$1: caught: $(head -n 1 "$work/reason")"
        return 0
    fi
    return 1
}

failed=0
for name; do
    mutants | grep -q "^$name " || { echo "$name: there is no such mutant" && failed=1; }
done
while read -r name file expression; do
    put_in "$file" "$expression" || { echo "$name: does not apply any more: $file" && failed=1; }
done <<END
$(mutants)
END
[ "$failed" -eq 0 ] || exit 1
while read -r name file expression; do
    [ $# -eq 0 ] || case " $* " in *" $name "*) ;; *) continue ;; esac
    try "$name" "$file" "$expression" </dev/null || failed=1
done <<END
$(mutants)
END
exit "$failed"
