#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Code that is read in one piece stays short: a function of src/ has fewer than FUNCTION_MOST lines, from its name to its closing
brace, and a file has at most FILE_MOST. A table is no function. The layout is clang-format's: a body begins and ends at the margin."""
import os
import sys

FUNCTION_MOST, FILE_MOST = 50, 500


def functions(lines):
    """Where each function begins, and how many lines it has."""
    head, body = None, False
    for number, line in enumerate(lines, 1):
        if body:
            if line == '}':
                yield head, number - head + 1
                head, body = None, False
        elif line == '{':
            head, body = head or number, True
        elif not line or line[0] in '#/*}' or line.endswith((';', '*/')):
            head = None
        elif head is None and not line[0].isspace():
            head = number


def faults(files):
    """`files`: path and text of each."""
    for path, text in files:
        lines = text.split('\n')
        if len(lines) - 1 > FILE_MOST:
            yield f'{path} has {len(lines) - 1} lines'
        for at, size in functions(lines):
            if size >= FUNCTION_MOST:
                yield f'{path}:{at}: a function of {size} lines'


def sources(root):
    for where, _, names in sorted(os.walk(os.path.join(root, 'src'))):
        for name in sorted(names):
            if name.endswith(('.c', '.h')):
                path = os.path.join(where, name)
                with open(path, encoding='utf-8') as file:
                    yield os.path.relpath(path, root), file.read()


def self_test():
    long = 'static int f(int a,\n             int b)\n{\n' + '    a++;\n' * 46 + '}\n'
    short = long.replace('    a++;\n', '', 1)
    table = 'static const int t[] = {\n' + '    1,\n' * 60 + '};\n'
    found = list(faults([('a.c', short + table), ('b.c', '/* what */\n' + long), ('c.h', '\n' * 501)]))
    return found == ['b.c:2: a function of 50 lines', 'c.h has 501 lines'], found


def main():
    good, found = self_test()
    tests = [
        ('the test finds a long function and a long file', [] if good else found),
        ('functions and files of src/ are short', list(faults(sources(os.environ.get('SOURCE', '.'))))),
    ]
    for number, (name, wrong) in enumerate(tests, 1):
        print(f'{"not " if wrong else ""}ok {number} - {name}')
        for line in wrong:
            print('#', line)
    print(f'1..{len(tests)}')
    return any(wrong for _, wrong in tests)


sys.exit(main())
