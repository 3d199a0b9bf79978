#!/bin/sh
# SPDX-License-Identifier: MIT
# Checks the model of a timer's handle with Spin: every interleaving. So that a model that checks nothing cannot pass, it
# is broken in some ways afterwards, each of which must be noticed.

. "$(dirname "$0")/../base/tap.sh"

model=$(dirname "$0")/handle.pml
starts=2 cancels=2 search=-DCOLLAPSE marks=24

# Where there is much memory, states are kept as they are: 1.8 GB instead of 0.8, and a third less time.
awk '/^MemAvailable:/ { exit $2 < 6000000 }' /proc/meminfo 2>/dev/null && search=-DNOCOLLAPSE marks=25

# One start more has more states than there is memory for. Spin then remembers them as marks in a gigabyte, and may take one
# in some thousands for one that it has seen.
[ -z "${FOLIOT_SOAK-}" ] || starts=3 cancels=1 search=-DBITSTATE marks=33

# explore FILE: true if no interleaving violates a claim.
explore() {
    (
        cd "$work" && rm -f pan* ./*.trail && spin -DSTARTS="$starts" -DCANCELS="$cancels" -a "$1" &&
            cc -w -O2 -DSAFETY "$search" -o pan pan.c && ./pan -m100000 -w"$marks" >pan.log && cat pan.log &&
            grep -q 'errors: 0' pan.log && ! grep -q 'not completed' pan.log
    )
}

# notices FROM TO: the model with all FROM replaced by TO is seen to be wrong.
notices() {
    sed "s/$1/$2/" "$model" >"$work/broken.pml"
    if cmp -s "$model" "$work/broken.pml"; then
        echo "nothing was replaced"
        return 1
    fi
    ! explore "$work/broken.pml"
}

if ! command -v spin >/dev/null || ! command -v cc >/dev/null; then
    skip "the handle's protocol holds" "there is no spin"
    done_testing
fi
cp "$model" "$work/handle.pml"
check "the handle's protocol holds in every interleaving" explore "$work/handle.pml"
check "firing without looking at the generation is noticed" \
    notices 'generation == g && state == SCHEDULED' 'state == SCHEDULED'
check "firing what was cancelled is noticed" notices 'generation == g && state == SCHEDULED' 'generation == g'
check "a cancel that always says true is noticed" notices 'atomic { waits -> cancelled' 'atomic { true -> cancelled'
check "a leaving worker that forgets its timers is noticed" notices '-> state = MIGRATING }; merge!g' '-> state = MIGRATING }'
check "an older start in the place of a later one is noticed" notices 'there != 0 && there < mine' 'there != 0'
check "a carrier that is sent for each start is noticed" notices ':: there == 0 ->' ':: true ->'
check "a start that does not change the generation is noticed" notices 'generation++;' 'skip;'
done_testing
