#!/usr/bin/env python3
"""Whether the table of error codes (runtime/base/faults.h), the guide's page (docs/errors.md), the sources and the kept
list (tests/runtime/base/fault_numbers.txt) agree.

    error_codes_test.py ROOT FLX_INFO

Each code has one section of the page, which begins with its title, has an example that ends with the code, and says
what to do. Each kind is used by the sources. Numbers are those of the kept list, in which each kind also has a test
that compares its code, or a reason why there is none. Then what the test itself would find: each rule is broken once.
And `flx_info --error` prints the sections."""

import os
import re
import subprocess
import sys

ROOMS = ("runtime", "ucx_glue", "algorithms", "probe")
ROW = re.compile(r'^\s*FAULT\((\d+), (\w+), "([^"]*)"\)', re.MULTILINE)
SECTION = re.compile(r"^### (.+)\n((?:(?!^##).*\n?)*)", re.MULTILINE)
TABLE = "runtime/base/faults.h"
PAGE = "docs/errors.md"
KEPT = "tests/runtime/base/fault_numbers.txt"


class Project:
    """The texts that are compared."""

    def __init__(self, root):
        self.root = root
        self.table = self.text(TABLE)
        self.page = self.text(PAGE)
        self.kept = self.text(KEPT)
        self.sources = "".join(
            self.text(os.path.relpath(os.path.join(folder, name), root))
            for room in ROOMS
            for folder, _, files in os.walk(os.path.join(root, room))
            for name in files
            if name.endswith((".h", ".cpp", ".cu", ".cuh")) and name != os.path.basename(TABLE)
        )

    def text(self, name):
        with open(os.path.join(self.root, name), encoding="utf-8") as file:
            return file.read()

    def kinds(self):
        """(number, name, title) in the order of the table."""
        return [(int(number), name, title) for number, name, title in ROW.findall(self.table)]

    def wrong(self):
        kinds = self.kinds()
        numbers = [number for number, _, _ in kinds]
        if len(kinds) < 60 or numbers != sorted(set(numbers)):
            yield f"{TABLE}: {len(kinds)} kinds whose numbers do not rise"
        yield from self.wrong_sections(kinds)
        yield from self.wrong_list(kinds)
        used = set(re.findall(r"Fault::(\w+)", self.sources))
        for _, name, _ in kinds:
            if name not in used:
                yield f"{TABLE}: nothing in {', '.join(ROOMS)} uses {name}"

    def wrong_sections(self, kinds):
        sections = SECTION.findall(self.page)
        wanted = [f"FLX-E{number}" for number, _, _ in kinds]
        if [heading for heading, _ in sections] != wanted:
            odd = sorted({heading for heading, _ in sections} ^ set(wanted))
            yield f"{PAGE}: its sections are not the codes in their order: {', '.join(odd) or 'another order'}"
            return
        for (code, body), (_, _, title) in zip(sections, kinds):
            example = "".join(line for line in body.splitlines(True) if line.startswith("    ")).rstrip()
            if not body.lstrip().startswith(f"**{title}.** "):
                yield f"{PAGE}: {code} does not begin with **{title}.**"
            if not example.endswith(f" [{code}]") and not example.endswith(f"\n    [{code}]") or example.count("[FLX-E") != 1:
                yield f"{PAGE}: the example of {code} does not end with its code"
            if "\nWhat to do: " not in body:
                yield f"{PAGE}: {code} does not say what to do"

    def wrong_list(self, kinds):
        lines = [line.split(None, 2) for line in self.kept.splitlines() if line and not line.startswith("#")]
        kept = {int(number): (name, where) for number, name, where in lines}
        if len(kept) != len(lines):
            yield f"{KEPT}: a number stands there twice"
        for number, name, _ in kinds:
            if kept.get(number, ("", ""))[0] != name:
                yield f"{KEPT}: {number} is not kept as {name}; numbers stay with their kinds, new ones are added"
        for number, (name, where) in kept.items():
            there = (number, name) in {(number, name) for number, name, _ in kinds}
            if not there and where != "gone":
                yield f"{KEPT}: {number} {name} is not in the table, and not gone"
            if there and not where.startswith("- "):
                yield from self.wrong_test(number, name, where)
            elif there and len(where) < 10:
                yield f"{KEPT}: {number} {name} has no reason"

    def wrong_test(self, number, name, where):
        if not os.path.isfile(os.path.join(self.root, where)):
            yield f"{KEPT}: {number} {name}: there is no {where}"
        elif not re.search(rf"Fault::{name}\b|FLX-E{number}\b|\b{number},\s+{{", self.text(where)):
            yield f"{KEPT}: {where} does not compare {number}, {name}"


def unnoticed(root):
    """Breaks each rule once: what nobody notices."""
    code = "### FLX-E601\n"
    changes = {
        "a section is missing": ("page", code, "### Else\n"),
        "a section is too many": ("page", code, "### FLX-E699\n\ntext\n\n" + code),
        "an example lacks its code": ("page", "communicator 1 [FLX-E601]\n\nWhat", "communicator 1\n\nWhat"),
        "a title differs": ("page", "**A rank died.**", "**A rank has died.**"),
        "a number was given to another kind": ("table", "FAULT(601, peer_died", "FAULT(600, peer_died"),
        "a kind is new": ("table", "    FAULT(602", '    FAULT(609, new_one, "A new one")\n    FAULT(602'),
        "a kind is dead": ("sources", "Fault::rails_lost", "Fault::no_link"),
        "a line is missing": ("kept", "601 peer_died", "# peer_died"),
        "a test does not compare it": ("kept", "tests/mpi/mismatch_test.cpp", "tests/mpi/startup_test.cpp"),
        "a reason is missing": ("kept", "- RDMA is needed\n", "-  \n"),
    }
    for what, (which, old, new) in changes.items():
        project = Project(root)
        text = getattr(project, which)
        if old not in text:
            yield f"this test itself: {old!r} is not in {which}"
        setattr(project, which, text.replace(old, new))
        if not list(project.wrong()):
            yield f"this test itself does not notice that {what}"


def wrong_answers(project, info):
    """What `flx_info --error` prints that is not the page's."""
    for heading, body in SECTION.findall(project.page):
        for code in (heading, heading[4:], heading[5:], heading.lower()):
            said = subprocess.run([info, "--error", code], capture_output=True, text=True, check=False)
            if said.returncode != 0 or said.stdout.strip() != f"### {heading}\n{body}".strip():
                yield f"flx_info --error {code}: code {said.returncode}: {said.stdout}{said.stderr}"
            if heading != "FLX-E601":
                break  # the ways of writing it are the same for all
    said = subprocess.run([info, "--error", "E999"], capture_output=True, text=True, check=False)
    if said.returncode != 1 or "E999" not in said.stderr or "FLX-E601  A rank died\n" not in said.stderr:
        yield f"flx_info --error E999: code {said.returncode}: {said.stderr}"


def main():
    root, info = sys.argv[1:3]
    project = Project(root)
    wrong = [*project.wrong(), *wrong_answers(project, info)] or list(unnoticed(root))
    print("\n".join(wrong) or f"{len(project.kinds())} codes: table, page, list, sources and flx_info agree")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
