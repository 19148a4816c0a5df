#!/usr/bin/env python3
"""Whether shells complete what programs say of themselves.

  completions_test.py BIN PAGES PROGRAM…

PAGES has what runtime/packaging/program_pages.py has made of the PROGRAMs in BIN. Each option that a program prints
with --help is offered after its first letters by bash, and by zsh and fish, where these are installed; so are the
values of some options, and another program's name after flx-run. The man page has each option, too."""

import os
import re
import shutil
import subprocess
import sys
import tempfile

# What else is to be offered: program, words typed, a word that is to be among those offered.
VALUES = [
    ("flx_perf", ["--dtype", "bf"], "bf16"),
    ("flx_perf", ["allr"], "allreduce"),
    ("flx_perf", ["--check", "all"], "alltoallv"),
    ("flx_lab", ["send"], "sendrecv"),
    ("flx_trainer", ["--reduce", "m"], "mpi"),
    ("flx-run", ["pr"], "printf"),
]
BASH = """
. "$1"
shift
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
"_${1//-/_}" 2>/dev/null
printf '%s\\n' "${COMPREPLY[@]}"
"""
# What zsh's own `_arguments` is told.
ZSH = """
_arguments() { print -rl -- "$@" }
source $1
"""


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.stdout.splitlines() if done.returncode == 0 else [f"{command[0]} failed: {done.stderr}"]


class Shells:
    """What the shells offer."""

    def __init__(self, pages):
        self.pages = pages
        self.home = tempfile.mkdtemp()

    def bash(self, program, words):
        return run("bash", "--norc", "-c", BASH, "bash", f"{self.pages}/bash/{program}", program, *words)

    def zsh_options(self, program):
        specs = run("zsh", "-fc", ZSH, "zsh", f"{self.pages}/zsh/_{program}")
        return {name for spec in specs for name in re.findall(r"^(?:\([^)]*\))?(-[\w-]+)\[", spec)}

    def fish(self, program, words):
        # A command's completions are offered where the command is there: a function will do.
        line = " ".join([program, *words])
        script = f"function {program}; end; source {self.pages}/fish/{program}.fish; complete -C '{line}'"
        return [offer.split("\t")[0] for offer in run("env", f"HOME={self.home}", "fish", "--no-config", "-c", script)]

    def close(self):
        shutil.rmtree(self.home)


def options_of(program):
    """Names of the options that --help prints, read in another way than the generator does."""
    text = "\n".join(run(program, "--help"))
    return [name for line in re.findall(r"^ {2,6}(-\S+)", text, re.M) for name in line.split(",")]


def main():
    binaries, pages, *programs = sys.argv[1:]
    if not os.path.isdir(f"{pages}/bash"):
        print("skipped: the build makes no completions")
        sys.exit(77)
    shells = Shells(pages)
    has_zsh, has_fish = shutil.which("zsh"), shutil.which("fish")
    wrong = []
    for program in programs:
        options = options_of(f"{binaries}/{program}")
        if len(options) < 2:
            wrong.append(f"{program}: no options were found in --help")
        with open(f"{pages}/man1/{program}.1", encoding="utf-8") as file:
            manual = file.read().replace("\\-", "-")
        known = shells.zsh_options(program) if has_zsh else set()
        for option in options:
            if f"\\fB{option}\\fR" not in manual:
                wrong.append(f"{program}: the man page lacks {option}")
            start = option[:-1] if option.startswith("--") else "-"
            if option not in shells.bash(program, [start]):
                wrong.append(f"{program}: bash does not complete {start} to {option}")
            if has_zsh and option not in known:
                wrong.append(f"{program}: zsh does not know {option}")
            if has_fish and option not in shells.fish(program, [start]):
                wrong.append(f"{program}: fish does not complete {start} to {option}")
    for program, words, wanted in VALUES:
        if program not in programs:
            continue
        for shell in [shells.bash] + ([shells.fish] if has_fish else []):
            offered = shell(program, words)
            if wanted not in offered:
                wrong.append(f"{program}: {shell.__name__} does not offer {wanted} after {words}: {offered}")
    shells.close()
    for sentence in wrong:
        print(sentence)
    for shell, there in (("zsh", has_zsh), ("fish", has_fish)):
        if not there:
            print(f"{shell} is not installed, so its completions were not tried")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
