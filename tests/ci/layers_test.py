#!/usr/bin/env python3
"""ci/layers finds what its rules forbid, and nothing else, in a small tree: layers_test.py CI_LAYERS"""
import os
import subprocess
import sys
import tempfile

TABLE = """# Rooms
| room | what it is for | may include |
|---|---|---|
| `base` | ground | nothing |
| `link` | what carries | `base` |
| `api` | the roof | all above |
"""
RIGHT = {
    "docs/architecture.md": TABLE,
    "runtime/base/status.h": "#include <string>\n",
    "runtime/link/link.h": '#include "runtime/base/status.h"\n',
    "runtime/link/rail.h": '#include "runtime/link/link.h"\n',
    "runtime/api/api.h": '#include "runtime/base/status.h"\n#include "runtime/link/link.h"\n',
    "CMakeLists.txt": "project(small)\n",
}
# What is changed, and what the answer must have; nothing: it is all right.
CASES = {
    "as it is": ({}, None),
    "an include of a room above": (
        {"runtime/base/status.h": '#include "runtime/link/link.h"\n'},
        "runtime/base/status.h:1: base may not include link",
    ),
    "an include without its path": ({"runtime/link/rail.h": '#include "link.h"\n'}, 'rail.h:1: include "link.h" by its'),
    "a folder that is no room": ({"runtime/cellar/wine.h": "\n"}, "runtime/cellar: the table"),
    "a room without a folder": (
        {"docs/architecture.md": TABLE + "| `attic` | nothing yet | nothing |\n"},
        "the table has a room attic",
    ),
    "too many files": ({f"runtime/link/link{i}.h": "\n" for i in range(30)}, "runtime/link: 32 sources"),
    "a long line of CMake": ({"CMakeLists.txt": "# word" * 21 + "\n"}, "CMakeLists.txt:1: 126 columns"),
    "a long line of prose": ({"docs/more.md": "word " * 30 + "\n"}, "docs/more.md:1: 150 columns"),
    "a long row of a table": ({"docs/more.md": "| " + "word " * 30 + "|\n"}, None),
    "no table": ({"docs/architecture.md": "# Rooms\n"}, "no table"),
}


def main(layers):
    failures = 0
    for name, (changes, wanted) in CASES.items():
        with tempfile.TemporaryDirectory() as root:
            for path, text in {**RIGHT, **changes}.items():
                os.makedirs(os.path.dirname(os.path.join(root, path)) or root, exist_ok=True)
                with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                    file.write(text)
            ran = subprocess.run([layers, "--root", root], capture_output=True, text=True, check=False)
        said = ran.stdout + ran.stderr
        right = ran.returncode == 0 if wanted is None else ran.returncode == 1 and wanted in said
        print(f"{'ok' if right else 'FAILED'}: {name}")
        if not right:
            print(f"  wanted {wanted}, got code {ran.returncode}:\n{said}")
            failures += 1
    return failures != 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
