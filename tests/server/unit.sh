#!/bin/sh
# SPDX-License-Identifier: MIT
# The systemd unit, given as argument: systemd understands all of it, and finds little that the server could do.

. "$(dirname "$0")/../base/tap.sh"

# The command is not installed yet. A folder may have a space in its name.
mkdir "$work/a folder"
ln -s "$BUILD/src/cli/foliot" "$work/a folder/foliot"
sed "s#^\(ExecStart=\"*\)[^ \"]*#\1$work/a folder/foliot#" "$1" >"$work/foliot.service"

understood() {
    systemd-analyze verify --man=no "$work/foliot.service" 2>&1 | tee "$work/said"
    ! grep -q 'foliot\.service' "$work/said"
}

# In tenths of 10: 96 is a service without any protection.
little_exposed() {
    systemd-analyze security --offline=true --threshold=20 --no-pager "$work/foliot.service"
}

no_placeholders() {
    ! grep '@[a-z]*dir@' "$1"
}

check "nothing is left to fill in" no_placeholders "$1"
printf '[Service]\nExecStart=/bin/true\n' >"$work/probe.service"
if systemd-analyze verify --man=no "$work/probe.service" >/dev/null 2>&1; then
    check "systemd understands the unit" understood
else
    skip "systemd understands the unit" "there is no systemd-analyze that works here"
fi
if systemd-analyze security --help 2>/dev/null | grep -q -e --offline; then
    check "the unit leaves the server little to do besides its work" little_exposed
else
    skip "the unit leaves the server little to do besides its work" "systemd-analyze cannot tell"
fi
done_testing
