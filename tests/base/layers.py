#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The folders of src/ are layers: this test reads the includes and finds those that break the rules.

1. A folder uses only folders above it in ORDER. The public headers count, too: <foliot/loop.h> is the loop's.
2. The core of the server, src/node, knows nothing of HTTP, webhooks and links: see APART.
3. Other folders include one header of a folder, FOLDER/FOLDER.h. Everything else is private. The folders in TOOLS are
   collections of small tools, and each of their headers may be included.
4. The header of a folder begins with a comment that says what the folder is for, which folders it may use ("This folder may
   use …"), and what each of its .c files does.

KNOWN lists what breaks the rules today. It may only become shorter: an entry that is no longer true is an error, too.
"""
import os
import re
import sys
import tempfile

ORDER = ['base', 'wheel', 'loop', 'runtime', 'coro', 'webtimers', 'js', 'store', 'engine', 'text', 'http', 'webhook',
         'peer', 'node', 'api', 'ui', 'server', 'cli']
APART = {'node': ['http', 'webhook', 'peer'], 'ui': ['http', 'webhook', 'peer', 'node']}
TOOLS = ['base', 'text']
# The public headers whose name is not that of their folder.
PUBLIC = {'nodes': 'wheel', 'alloc': 'base', 'error': 'base', 'version': 'base', 'clock': 'loop', 'kcoro': 'coro'}

KNOWN = []


def read(path):
    with open(path, encoding='utf-8') as file:
        return file.read()


def sources(root, folder):
    for where, _, names in sorted(os.walk(os.path.join(root, 'src', folder))):
        for name in sorted(names):
            if name.endswith(('.c', '.h')):
                yield os.path.relpath(os.path.join(where, name), os.path.join(root, 'src'))


def includes(root, path):
    """The headers of the project that a file includes, as (folder, header)."""
    text = read(os.path.join(root, 'src', path))
    for quote, name in re.findall(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', text, re.M):
        first, _, rest = name.partition('/')
        if first == 'foliot':
            stem = rest[:-2]
            yield PUBLIC.get(stem, stem), name
        elif quote == '"' and rest:
            yield first, name


def include_faults(root):
    """Rules 1 to 3."""
    for folder in sorted(os.listdir(os.path.join(root, 'src'))):
        if folder not in ORDER:
            yield f'src/{folder} is not in the list of layers'
            continue
        for path in sources(root, folder):
            for other, name in includes(root, path):
                if other == folder:
                    continue
                if other not in ORDER:
                    yield f'{folder} includes {name}: not a header of a layer'
                elif ORDER.index(other) > ORDER.index(folder) or other in APART.get(folder, []):
                    yield f'{folder} includes {name}: {other} is not below {folder}'
                elif not name.startswith('foliot/') and other not in TOOLS and name != f'{other}/{other}.h':
                    yield f'{folder} includes {name}: private to {other}'


def header_faults(root):
    """Rule 4."""
    for folder in sorted(os.listdir(os.path.join(root, 'src'))):
        if not list(sources(root, folder)):
            continue  # no code: the pages of the dashboard
        header = f'{folder}/{folder}.h'
        path = os.path.join(root, 'src', header)
        if not os.path.exists(path):
            yield f'{folder} has no header {header}', []
            continue
        comment = re.match(r'/\* SPDX[^\n]*\n(?:#[^\n]*\n)*\s*/\*(.*?)\*/', read(path), re.S)
        text = re.sub(r'\n \* ?', ' ', comment.group(1)) if comment else ''
        words = set(re.findall(r'[\w/]+\.[ch]\b|[\w/]+/', text))
        allowed = re.search(r'folder may use ([^.]*)\.', text)
        used = {other for path in sources(root, folder) for other, _ in includes(root, path)} - {folder}
        beyond = sorted(used - set(re.findall(r'\w+', allowed.group(1) if allowed else '')))
        if not allowed or beyond:
            yield f'{header} does not say which folders it may use', beyond
        missing = []
        for file in sources(root, folder):
            inside = os.path.relpath(file, folder)
            if inside.endswith('.c') and not {inside, inside.split('/')[0] + '/'} & words:
                missing.append(inside)
        if missing:
            yield f'{header} does not say what each file is for', missing


def faults(root):
    """Each fault, and what there is to say about it."""
    return dict(sorted([(fault, []) for fault in include_faults(root)] + list(header_faults(root))))


def compare(found, known):
    """What is new, and what is listed and is no longer true."""
    return [fault for fault in found if fault not in known], [fault for fault in known if fault not in found]


def self_test():
    """A tree of files with one fault of each kind."""
    files = {
        'base/base.h': '/* SPDX */\n#ifndef X\n\n/* Tools. This folder may use\n * loop.\n * alloc.c: memory */\n',
        'base/alloc.c': '#include "base/base.h"\n#include <foliot/loop.h>\n',
        'node/node.h': '/* SPDX */\n/* The core. This folder may use base, http, nowhere. shards.c: shards */\n#include "http/http.h"\n',
        'node/shards.c': '#include "store/sqlite/base.h"\n# include "store/store.h"\n#include "base/base.h"\n#include <stdio.h>\n',
        'node/forgotten.c': '#include "nowhere/x.h"\n',
        'store/store.h': '/* SPDX */\n/* Stores: sqlite/. This folder may use nothing. */\n',
        'store/sqlite/base.h': '',
        'store/sqlite/base.c': '#include "store/sqlite/base.h"\n',
        'http/http.h': '/* SPDX */\n/* HTTP. */\n',
        'spare/spare.h': '',
    }
    expected = [
        'base includes foliot/loop.h: loop is not below base',
        'http/http.h does not say which folders it may use',
        'node includes http/http.h: http is not below node',
        'node includes nowhere/x.h: not a header of a layer',
        'node includes store/sqlite/base.h: private to store',
        'node/node.h does not say what each file is for',
        'node/node.h does not say which folders it may use',
        'spare/spare.h does not say which folders it may use',
        'src/spare is not in the list of layers',
    ]
    with tempfile.TemporaryDirectory() as root:
        for path, text in files.items():
            os.makedirs(os.path.dirname(os.path.join(root, 'src', path)), exist_ok=True)
            with open(os.path.join(root, 'src', path), 'w', encoding='utf-8') as file:
                file.write(text)
        found = faults(root)
    new, stale = compare(['a', 'b'], ['b', 'c'])
    right = list(found) == expected and found['node/node.h does not say what each file is for'] == ['forgotten.c']
    return right and new == ['a'] and stale == ['c'], found


def main():
    good, found = self_test()
    all_faults = faults(os.environ.get('SOURCE', '.'))
    new, stale = compare(all_faults, KNOWN)
    tests = [
        ('the test finds one fault of each kind in a tree that has them', [] if good else found),
        ('folders use only the headers of folders below them', [f for f in new if ': ' in f]),
        ("each folder's header says which folders it may use and what its files are for", [f for f in new if ': ' not in f]),
        ('no entry of KNOWN is out of date: remove these', stale),
    ]
    for number, (name, wrong) in enumerate(tests, 1):
        print(f'{"not " if wrong else ""}ok {number} - {name}')
        for line in wrong:
            print('#', line, *all_faults.get(line, []))
    print(f'1..{len(tests)}')
    return any(wrong for _, wrong in tests)


sys.exit(main())
