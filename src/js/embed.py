#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes a C header of JavaScript files: embed.py OUTPUT FILE...

The header defines `prelude`, an array of {name, source, length}, in the order of the files, and `prelude_count`. The names
are what shows up in stack traces: foliot:events.js and the like.
"""

import os
import sys


def main():
    output, *files = sys.argv[1:]
    names = [os.path.basename(path) for path in files]
    with open(output, "w", encoding="ascii") as out:
        out.write("/* Made by embed.py. */\n#include <stddef.h>\n\n")
        for number, path in enumerate(files):
            with open(path, "rb") as file:
                source = file.read()
            out.write(f"static const char prelude_{number}[] = {{\n")
            for at in range(0, len(source), 24):
                out.write("    " + ", ".join(str(byte - 256 if byte > 127 else byte) for byte in source[at : at + 24]) + ",\n")
            out.write("};\n\n")
        out.write("static const struct prelude {\n    const char *name, *source;\n    size_t length;\n} prelude[] = {\n")
        for number, name in enumerate(names):
            out.write(f'    {{"foliot:{name}", prelude_{number}, sizeof(prelude_{number})}},\n')
        out.write("};\n\nstatic const size_t prelude_count = sizeof(prelude) / sizeof(prelude[0]);\n")


main()
