#!/usr/bin/env python3
"""What programs that were built with flx.h rely on does not change without a new version.

  abi_test.py LAYOUT LIBRARY HEADER KEPT            compares with the kept list
  abi_test.py LAYOUT LIBRARY HEADER KEPT --update   writes the list of a new version

LAYOUT is the program of abi_layout.c, KEPT the list abi.txt. A list is kept for one version: a change is a new version
in CMakeLists.txt and flx.h, after which the list is written anew.
"""
import re
import subprocess
import sys


def facts_of(layout, library, header):
    facts = subprocess.run([layout], check=True, capture_output=True, text=True).stdout.splitlines()
    facts += [f"constant {name} = {value}"
              for name, value in re.findall(r"^\s+(FLX_\w+) = (-?\d+)", open(header).read(), re.M)]
    symbols = subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout
    # `0000 T flx_bcast@@FLX_0`; the version's own name is absolute.
    found = [line.split()[1:] for line in symbols.splitlines()]
    facts += sorted(f"symbol {name} {kind}" for kind, name in found)
    dynamic = subprocess.run(["objdump", "-p", library], check=True, capture_output=True, text=True).stdout
    facts += re.findall(r"SONAME\s+\S+", dynamic)
    return [" ".join(fact.split()) for fact in facts]


def problems_of(facts, kept):
    """Facts begin with the version."""
    if facts[0] != kept[0]:
        return [f"the list is of {kept[0]}, this is {facts[0]}: write the list anew with --update"]
    gone = [f"- {fact}" for fact in kept if fact not in facts]
    new = [f"+ {fact}" for fact in facts if fact not in kept]
    if not gone and not new:
        return []
    return gone + new + [f"this changed and the version did not: {facts[0]}. Raise it in CMakeLists.txt and flx.h "
                         "(what is gone or changed: as an incompatible one), then write the list anew with --update"]


def not_listed(header, facts):
    """Public types of the header that the program of abi_layout.c leaves out."""
    text = open(header).read()
    types = re.findall(r"^} (flx_\w+_t);", text, re.M) + re.findall(r"^typedef struct \w+ \*(flx_\w+_t);", text, re.M)
    known = [fact.split()[1] for fact in facts if fact.startswith("struct ")]
    members = {fact.split()[1] for fact in facts if fact.startswith("member ")}
    problems = [f"{name} is in flx.h and not in abi_layout.c" for name in types if name not in known]
    for body, name in re.findall(r"typedef struct \w+ \{(.*?)\n\} (flx_\w+_t);", text, re.S):
        for member in re.findall(r"^\s+[\w ]+[ *](\w+)(?:\[\d+\])?;", body, re.M):
            if f"{name}.{member}" not in members:
                problems.append(f"{name}.{member} is in flx.h and not in abi_layout.c")
    return problems if types else ["no type was found in flx.h"]


def check_the_check(facts):
    """Each kind of change must be seen."""
    version = ["version 999.0.0"] + facts[1:]
    assert problems_of(facts, facts) == [] and problems_of(version, facts)
    for kind in ("struct", "member", "constant", "symbol", "SONAME"):
        at = next(i for i, fact in enumerate(facts) if fact.startswith(kind))
        assert problems_of(facts[:at] + facts[at + 1:], facts), kind
        assert problems_of(facts[:at] + [facts[at] + "0"] + facts[at + 1:], facts), kind
        assert problems_of(facts + [facts[at] + "0"], facts), kind


def main():
    layout, library, header, kept_file = sys.argv[1:5]
    facts = facts_of(layout, library, header)
    check_the_check(facts)
    problems = not_listed(header, facts)
    if sys.argv[5:] == ["--update"]:
        try:
            kept = open(kept_file).read().splitlines()
        except FileNotFoundError:
            kept = []
        if kept and kept[0] == facts[0] and kept != facts:
            problems += problems_of(facts, kept)
        if not problems:
            open(kept_file, "w").write("\n".join(facts) + "\n")
    else:
        problems += problems_of(facts, open(kept_file).read().splitlines())
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
