#!/bin/sh
# Shows that the simulation finds bugs: puts one at a time into a copy of the sources, builds it, and lives until a promise is
# broken. Usage: mutants.sh SOURCE-DIR [NAME...]
#
# A mutant is a name, a file and an expression for sed. One that changes nothing is an error: the code has moved on, and the
# mutant must follow.
set -eu
source=$(cd "$1" && pwd)
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM

mutants() {
    cat <<'END'
version-not-checked src/store/memory.c s/request->version != book->version || request->version == 0/request->version == 0/
delete-what-is-kept src/engine/progress.c s/passed(e, fl_window_end(window)) \&\& !kept_in(e, window)/passed(e, fl_window_begin(window))/
unknown-is-refused src/engine/write.c s/fl__ops_written(e, entry->work, entry, request->result)/fl__ops_written(e, entry->work, entry, request->result == FL_OUTCOME_UNKNOWN ? FL_STORE_UNAVAILABLE : request->result)/
pending-writes-not-kept src/engine/progress.c s/keep_written(e, e->sent, &count) < 0 ||//
flights-not-kept src/engine/progress.c s/if (keep_flights(e, &count) < 0 ||/if (/
front-passes-until src/engine/progress.c s/int64_t at_us = e->drained_us\[kind\] < e->until.at_us ? e->drained_us\[kind\] : e->until.at_us;/int64_t at_us = fl__engine_now(e);/
hold-ignored src/engine/fire.c s/flight->item->flags & ITEM_HELD/false/
inserted-beyond-until src/engine/ops.c s/if (!wanted && key_before(row->key, e->until))/if (!wanted)/
retry-loses-row src/engine/fire.c s/change->put = &entry->row;/change->put = NULL;/
lease-ignored src/engine/engine.c s/ && fl_loop_now_ns(e->loop) < e->lease_end_ns//
clock-not-followed src/engine/fire.c s/if (e->clock_us < now_us) {/if (false) {/
refiled-parts-forgotten src/engine/load.c s/add_parts(e, request, UINT64_MAX);/(void)0;/
kept-by-owner-before-forgotten src/engine/progress.c s/return behind_front(e, key) \&\& !kept_before(e, key.seq)/return behind_front(e, key)/
loaded-twice src/engine/load.c s/fl__settled(e, row->key) || fl__flight_find(e, row->key.seq)/false/
END
}

copy() {
    mkdir "$work/tree"
    (cd "$source" && git ls-files -z | xargs -0 tar -cf -) | tar -xf - -C "$work/tree"
    meson setup "$work/build" "$work/tree" -Dbuildtype=debugoptimized >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
}

# Whether the mutant is caught within a thousand lives.
try() {
    cp "$work/tree/$2" "$work/kept"
    sed -i "$3" "$work/tree/$2"
    if cmp -s "$work/kept" "$work/tree/$2"; then
        echo "$1: does not apply any more: $2"
        return 1
    fi
    status=0
    if ! ninja -C "$work/build" tests/sim/sim-lives >"$work/log" 2>&1; then
        grep -m 3 error: "$work/log"
        echo "$1: does not build"
        status=1
    elif timeout 120 "$work/build/tests/sim/sim-lives" >"$work/log" 2>&1; then
        echo "$1: NOT CAUGHT"
        status=1
    else
        echo "$1: caught: $(grep -hoE 'seed 0x.*|Assertion.*' "$work/log" | head -n 1)"
    fi
    cp "$work/kept" "$work/tree/$2"
    return "$status"
}

copy
failed=0
while read -r name file expression; do
    [ $# -eq 0 ] || case " $* " in *" $name "*) ;; *) continue ;; esac
    try "$name" "$file" "$expression" </dev/null || failed=1
done <<END
$(mutants)
END
exit "$failed"
