#!/bin/sh
# SPDX-License-Identifier: MIT
# tests/tidy.py: a file is looked at again whenever anything has changed that a finding may depend on, and only then.

. "$(dirname "$0")/tap.sh"

# A project of two files, and a clang-tidy that notes whom it was asked about and objects to the word "bad".
project=$work/project
mkdir -p "$project/bin" "$project/build"
cat >"$project/bin/clang-tidy" <<'END'
#!/bin/sh
[ "$1" != --version ] || { cat version; exit 0; }
for file; do :; done
basename "$file" >>looked
[ "$(grep -o '"arguments"' "$3/compile_commands.json" | wc -l)" -eq 1 ] && ! grep -q bad "$file"
END
chmod +x "$project/bin/clang-tidy"
cd "$project" || exit 1
echo 1 >version
echo 'Checks: all' >.clang-tidy
echo 'int number(void);' >one.h
printf '#include "one.h"\nint number(void) { return 1; }\n' >one.c
echo 'int other(void); int other(void) { return 2; }' >two.c

# command FILE OPTION PROGRAM
command_for() {
    printf '{"directory": "%s/build", "command": "%s -I%s.p %s -MD -MQ %s.o -MF %s.d -o %s.o -c ../%s", "file": "../%s"}' \
        "$project" "$CC" "$3" "$2" "$3" "$3" "$3" "$1" "$1"
}

# Two programs have one.c in them.
compiled_with() {
    printf '[%s, %s, %s]' "$(command_for one.c "$1" a)" "$(command_for one.c "$1" b)" "$(command_for two.c -O1 a)" \
        >build/compile_commands.json
}
compiled_with -O1

# looks STATUS FILES: ends so, after having looked at these.
looks() {
    : >looked
    PATH=$project/bin:$PATH python3 "$SOURCE/tests/tidy.py" clean build one.c two.c
    status=$?
    echo "status $status, looked at: $(sort looked | tr '\n' ' ')"
    [ "$status" -eq "$1" ] && [ "$(sort looked | tr '\n' ' ')" = "$2" ]
}

check "at first, all are looked at, once each" looks 0 "one.c two.c "
check "nothing has changed: none is" looks 0 ""
echo '/* another comment */' >>one.h
check "a header has changed" looks 0 "one.c "
compiled_with -O2
check "it is compiled in another way" looks 0 "one.c "
echo '/* bad */' >>two.c
check "a finding" looks 1 "two.c "
check "a finding is not forgotten" looks 1 "two.c "
echo 'int other(void); int other(void) { return 2; }' >two.c
check "as it was when it was clean" looks 0 ""
echo 2 >version
check "another version of the tool" looks 0 "one.c two.c "
echo 'Checks: some' >.clang-tidy
check "other settings" looks 0 "one.c two.c "
rm one.h
check "a file that does not compile is looked at" looks 0 "one.c "
printf '[%s]' "$(command_for two.c -O1 a)" >build/compile_commands.json
check "nobody compiles it" looks 1 ""
done_testing
