#!/usr/bin/env python3
"""Copies sources of runtime/ for the proof, with rings so short that a few operations go round them, and, where asked
for, with mistakes that can be switched on one by one.

    prepare.py [--mistakes] PROJECT_FOLDER TARGET_FOLDER

Every text that is to be replaced must be there exactly once: who changes such a line changes it here, too.
"""

import json
import pathlib
import sys

from mistakes import MISTAKES

# Where a wait's turn ends.
HOOKS = [('    void moved() {\n', '    void moved() {\n        ::flx_interleave_moved();\n'),
         ('namespace flx {\n\ninline void cpu_relax', 'void flx_interleave_moved();\n\nnamespace flx {\n\ninline void cpu_relax')]
FOLDERS = {
    'channel.cpp': 'runtime/shm/ways',
    'copies.cpp': 'runtime/shm/copies',
    'fused.cpp': 'runtime/shm/ways',
    'mapped.cpp': 'runtime/shm/copies',
    'ring.h': 'runtime/shm/memory',
    'stream.cpp': 'runtime/shm/ways',
}
# What is made small. The proportions stay: places at least twice as many as what is told at once, looks ahead shorter
# than rings.
SIZES = {
    'ring.h': [
        ('kAhead = 8;', 'kAhead = 2;'),
        ('kNextLook = 32;', 'kNextLook = 3;'),
    ],
    'fused.cpp': [
        ('kBoards = 64;', 'kBoards = 4;'),
        ('kShorts = 32;', 'kShorts = 4;'),
        ('kPayloads = 4;', 'kPayloads = 2;'),
        ('kToldPart = 4;', 'kToldPart = 2;'),
        ('kPageBytes = 4096;', 'kPageBytes = 512;'),
        ('kLittle = size_t{256} << 10;', 'kLittle = 1;'),
    ],
    'channel.cpp': [
        ('kFreedPart = 4;', 'kFreedPart = 2;'),
    ],
    'stream.cpp': [
        ('kSlots = 4;', 'kSlots = 2;'),
        ('kTags = 8;', 'kTags = 4;'),
        ('kLargestBlock = 256 * 1024;', 'kLargestBlock = 64;'),
        ('kSmallestBlock = 4096;', 'kSmallestBlock = 64;'),
        ('kSmallestOfLittle = 2048;', 'kSmallestOfLittle = 64;'),
    ],
}


def replace(text, old, new, where):
    if text.count(old) != 1:
        sys.exit(f'prepare.py: {where} has {text.count(old)} times, not once:\n{old}')
    return text.replace(old, new)


def copy(project, folder, name, target, changes):
    text = (project / folder / name).read_text()
    for old, new in changes:
        text = replace(text, old, new, name)
    (target / folder).mkdir(parents=True, exist_ok=True)
    (target / folder / name).write_text(text)


def main():
    with_mistakes = sys.argv[1] == '--mistakes'
    project, target = (pathlib.Path(name) for name in sys.argv[-2:])
    copy(project, 'runtime/base', 'wait.h', target, HOOKS)
    for name, folder in FOLDERS.items():
        changes = list(SIZES.get(name, []))
        for number, (_, _, file, old, new) in enumerate(MISTAKES, 1):
            if with_mistakes and file == name:
                condition = f'::flx::interleave::mistake({number})'
                changes.append((old, f'{{ if ({condition}) {{ {new} }} else {{ {old} }} }}'))
        copy(project, folder, name, target, changes)
    if with_mistakes:
        rows = ''.join(f'    {{{json.dumps(what)}, {json.dumps(families)}}},\n' for what, families, *_ in MISTAKES)
        (target / 'mistakes_table.h').write_text(f'constexpr Mistake kMistakes[] = {{\n{rows}}};\n')


if __name__ == '__main__':
    main()
