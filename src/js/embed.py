#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes a C header of text files: embed.py OUTPUT NAME PREFIX FILE...

The header defines an array NAME of {name, hash, source, length}, in the order of the files, each source ended by a NUL that is
not counted, and NAME_count. A name is the file's with PREFIX before it: JavaScript shows names in stack traces. The hash is of
the file's content.
"""

import hashlib
import os
import sys


def main():
    output, array, prefix, *files = sys.argv[1:]
    names, hashes = [prefix + os.path.basename(path) for path in files], []
    with open(output, "w", encoding="ascii") as out:
        out.write("/* Made by embed.py. */\n#include <stddef.h>\n\n")
        for number, path in enumerate(files):
            with open(path, "rb") as file:
                source = file.read()
            hashes.append(hashlib.sha256(source).hexdigest()[:16])
            source += b"\0"
            out.write(f"static const char {array}_{number}[] = {{\n")
            for at in range(0, len(source), 24):
                out.write("    " + ", ".join(str(byte - 256 if byte > 127 else byte) for byte in source[at : at + 24]) + ",\n")
            out.write("};\n\n")
        out.write(f"static const struct {array} {{\n    const char *name, *hash, *source;\n    size_t length;\n}} {array}[] = {{\n")
        for number, (name, digest) in enumerate(zip(names, hashes)):
            out.write(f'    {{"{name}", "{digest}", {array}_{number}, sizeof({array}_{number}) - 1}},\n')
        out.write(f"}};\n\nstatic const size_t {array}_count = sizeof({array}) / sizeof({array}[0]);\n")


main()
