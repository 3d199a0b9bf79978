#!/bin/sh
# SPDX-License-Identifier: MIT
# Does the simulation find faults? Each mutant is the engine, or the memory store, with one deliberate fault; the simulation
# must catch every one of them. A mutant is one file compiled anew and linked before the library.
#
# From Meson: SOURCE, BUILD, CC; MUTANT_LIVES, how many lives each gets at most (400).

. "$(dirname "$0")/../base/tap.sh"

lives=${MUTANT_LIVES:-400}

compile() {
    $CC -std=gnu17 -D_GNU_SOURCE -O1 -w -I "$SOURCE/include" -I "$SOURCE/src" -I "$SOURCE/tests" "$@"
}

# Once for all mutants: the simulation itself.
prepare() {
    for file in "$SOURCE"/tests/sim/*.c; do
        compile -c "$file" -o "$work/$(basename "$file" .c).o" || return 1
    done
}

# mutate FILE SED-EXPRESSION: fails if the expression changes nothing.
mutate() {
    sed "$2" "$SOURCE/src/$1" >"$work/mutant.c"
    if cmp -s "$SOURCE/src/$1" "$work/mutant.c"; then
        echo "the mutation no longer fits $1: $2"
        return 1
    fi
    compile -c "$work/mutant.c" -o "$work/mutant.mo" && link "$work/mutant.mo"
}

# link FILE...: what is given comes before the library's own.
link() {
    # shellcheck disable=SC2046 # one word a flag
    $CC -o "$work/mutant" "$work"/*.o "$@" "$BUILD/libfoliot-durable.a" "$BUILD/libfoliot.a" \
        $(pkg-config --libs sqlite3 libpq) -lpthread -lm
}

# Without a fault, all must be well: else nothing would be said by what follows.
lives_without_fault() {
    link && timeout 120 "$work/mutant" 1 "$lives"
}

caught() {
    mutate "$1" "$2" || return 1
    if timeout 120 "$work/mutant" 1 "$lives"; then
        echo "it lived $lives lives and nobody noticed"
        return 1
    fi
}

# mutant WHAT FILE SED-EXPRESSION
mutant() {
    check "caught: $1" caught "$2" "$3"
}

check "the simulation is built" prepare
check "without a fault, $lives lives are good" lives_without_fault
mutant "anybody may write to a shard" store/memory.c 's/request->version != book->version || //'
mutant "a window is deleted before both fronts have passed it" engine/progress.c \
    's/return e->front\[0\].at_us >= at_us && e->front\[1\].at_us >= at_us && /return e->front[0].at_us >= at_us \&\& /'
mutant "a window is deleted although something in it is under way" engine/progress.c 's/ && !kept_in(e, window)//'
mutant "what is on its way to the store is not kept in the record" engine/progress.c \
    's/if (write->changes\[i\].put && behind_front/if (0 \&\& behind_front/'
mutant "flights are not kept in the record" engine/progress.c 's/if (counts && behind_front/if (0 \&\& behind_front/'
mutant "the front passes what is not loaded" engine/progress.c \
    's/int64_t at_us = e->drained_us\[kind\] < e->until.at_us ? e->drained_us\[kind\] : e->until.at_us;/int64_t at_us = e->wall_us;/'
mutant "a timer fires while it is being cancelled or moved" engine/fire.c 's/flight->item->flags & ITEM_HELD/0/'
mutant "a cancelled timer stays in memory" engine/ops.c 's/if (work->old_key.seq)$/if (0)/'
mutant "a creation is not taken into memory" engine/ops.c 's/if (!wanted && key_before(row->key, e->until))/if (0)/'
mutant "a creation is taken into memory beyond what is loaded" engine/ops.c \
    's/if (!wanted && key_before(row->key, e->until))/if (!wanted)/'
mutant "what is settled is loaded again" engine/load.c 's/fl__settled(e, row->key) || //'
mutant "making room forgets to say so" engine/memory.c 's/^        e->until = from;/        (void)from;/'
mutant "a retry takes the row away and files none" engine/fire.c 's/^    change->put = &entry->row;//'
mutant "timers fire a millisecond early" engine/fire.c \
    's/(uint64_t)to_us \* NS_PER_US, e->due/(uint64_t)(to_us + 1000) * NS_PER_US, e->due/'
mutant "a lease is for ever" engine/engine.c 's/ && fl_loop_update_now(e->loop) < e->lease_end_ns//'
mutant "numbers are used again after a crash" engine/engine.c 's/e->seq_next = progress->seq_limit;/e->seq_next = 2;/'
done_testing
