#!/usr/bin/env python3
"""What ci/layers forbids, and which functions it calls long, in a small tree: layers_test.py CI_LAYERS"""
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
    "a long function": ({"runtime/base/long.cpp": "int far() {\n" + "    step();\n" * 100 + "}\n"}, None),
    "a long overview": (
        {"docs/architecture.md": TABLE + "A line.\n" * 145},
        "docs/architecture.md: 151 lines, more than 150",
    ),
    "no table": ({"docs/architecture.md": "# Rooms\n"}, "no table"),
}


def write(root, files):
    for path, text in files.items():
        os.makedirs(os.path.dirname(os.path.join(root, path)) or root, exist_ok=True)
        with open(os.path.join(root, path), "w", encoding="utf-8") as file:
            file.write(text)


def steps(lines, margin):
    return " " * margin + ("step();\n" + " " * margin) * (lines - 1) + "step();\n"


# Functions of 61 lines and of 60, and what is longer but no function.
LONG = (
    "namespace flx {\nclass Rail final : public Link {\n  public:\n"
    f"    int long_member(int a) const override {{\n{steps(59, 8)}    }}\n"
    f"    int member() {{\n{steps(58, 8)}    }}\n"
    "    struct Cell {\n"
    f"        Cell() noexcept {{\n{steps(59, 12)}        }}\n"
    "    };\n"
    f"    std::vector<int> numbers_{{\n{steps(70, 8)}    }};\n"
    "    int last_ = 0;\n};\n\nnamespace {\n\n"
    f"struct flock long_free(int rank,\n                       int peer) {{\n{steps(58, 4)}}}\n\n"
    f"int brief() {{\n{steps(58, 4)}}}\n\n"
    f"constexpr auto kLambda = [](int rank) {{\n{steps(70, 4)}}};\n\n"
    f"std::array<int, 70> kTable = {{\n{steps(70, 4)}}};\n\n"
    "}  // namespace\n\n"
    f"__global__ void __launch_bounds__(kThreads) long_kernel(const __grid_constant__ Job job) {{\n{steps(30, 4)}"
    f"    if (job.bytes != 0) {{\n{steps(70, 8)}    }} else {{\n{steps(70, 8)}    }}\n"
    f"    for (int i = 0; i < 70; ++i) {{\n{steps(70, 8)}    }}\n"
    f"#pragma unroll\n    each([&](int rank) {{\n{steps(70, 8)}    }});\n}}\n\n"
    f"template <typename T>\nLongMaker<T>::LongMaker()\n    : first_(1),\n      last_(2) {{\n{steps(57, 4)}}}\n\n"
    "}  // namespace flx\n"
)
HEADS = ("long_member", "Cell", "long_free", "long_kernel", "LongMaker")


def counts_long_functions(layers):
    """Whether those of more than 60 lines are counted, and listed, and no others."""
    with tempfile.TemporaryDirectory() as root:
        write(root, {**RIGHT, "runtime/link/rail.cpp": LONG})
        numbers = subprocess.run([layers, "--root", root, "--numbers"], capture_output=True, text=True, check=False)
        listed = subprocess.run([layers, "--root", root, "--long"], capture_output=True, text=True, check=False)
    rows = listed.stdout.splitlines()
    right = (
        f"{len(HEADS):6}  functions of more than 60 lines in runtime/" in numbers.stdout.splitlines()
        and len(rows) == len(HEADS)
        and all(any(f"{head}(" in row for row in rows) for head in HEADS)
    )
    print(f"{'ok' if right else 'FAILED'}: long functions")
    if not right:
        print(f"  wanted {', '.join(HEADS)}, got:\n{numbers.stdout}{listed.stdout}{numbers.stderr}{listed.stderr}")
    return right


def main(layers):
    failures = 0
    for name, (changes, wanted) in CASES.items():
        with tempfile.TemporaryDirectory() as root:
            write(root, {**RIGHT, **changes})
            ran = subprocess.run([layers, "--root", root], capture_output=True, text=True, check=False)
        said = ran.stdout + ran.stderr
        right = ran.returncode == 0 if wanted is None else ran.returncode == 1 and wanted in said
        print(f"{'ok' if right else 'FAILED'}: {name}")
        if not right:
            print(f"  wanted {wanted}, got code {ran.returncode}:\n{said}")
            failures += 1
    failures += not counts_long_functions(layers)
    return failures != 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
