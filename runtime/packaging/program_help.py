"""What a program says of itself with --help, taken apart: its purpose, its usage and its options.

It reads what CLI11 prints, and what `flx-run --help` prints: lines that begin with an option, then two spaces or a new
line, then what the option does. A line that is indented further goes on with the one above it."""

import os
import re
import subprocess
from dataclasses import dataclass, field

HEADER = re.compile(r"^(Positionals|Options):$")
USAGE = re.compile(r"^(?:Usage: |  )(.*)$")
ENTRY = re.compile(r"^ {1,7}(\S.*?)(?: {2,}(\S.*))?$")
FURTHER = re.compile(r"^ {8,}(\S.*)$")
RELATION = re.compile(r" ?\b(Excludes|Needs): ((?:-\S+ ?)+)")
# `a, b, c` at the beginning of a description are all the values that there are.
LIST = re.compile(r"((?:[\w./-]+, ){2,}[\w./-]+)(?=;|$)")


@dataclass
class Option:
    """An option, or an argument without one (`names` is empty then)."""

    names: list[str]
    value: str = ""  # what stands for its value, such as TEXT; empty: it takes none
    default: str = ""
    least_most: tuple[str, str] | None = None
    choices: list[str] = field(default_factory=list)
    excludes: list[str] = field(default_factory=list)
    needs: list[str] = field(default_factory=list)
    text: str = ""

    def takes_file(self):
        is_text = self.value in ("TEXT", "FILE") or not self.names
        return is_text and not self.choices and (not self.default or "/" in self.default)


@dataclass
class Help:
    """All that the text has."""

    program: str
    purpose: list[str] = field(default_factory=list)  # lines of what stands before the options
    usage: str = ""
    remarks: list[str] = field(default_factory=list)  # and behind them
    options: list[Option] = field(default_factory=list)
    arguments: list[Option] = field(default_factory=list)

    def summary(self):
        """The first sentence in a few words, as the index of man pages has it."""
        first = re.split(r"[.;](?:\s|$)", " ".join(self.purpose))[0]
        if len(first) > 80:
            first = re.split(r"[:,] ", first)[0]
        return first[:1].lower() + first[1:]

    def runs_command(self):
        """Whether another program's command line follows."""
        return "PROGRAM" in self.usage


def read_left(left, is_argument):
    """`--root INT:INT in [0 - 16]=0 Excludes: --all`, or `collective TEXT REQUIRED`."""
    head, _, rest = left.partition(" ")
    option = Option([] if is_argument else head.split(","))
    for kind, names in RELATION.findall(rest):
        (option.excludes if kind == "Excludes" else option.needs).extend(names.split())
    rest = RELATION.sub("", rest).strip()
    if default := re.search(r"=([^\[\](){}]*)$", rest):
        option.default = default.group(1)
        rest = rest[: default.start()]
    option.value = head if is_argument else re.match(r"[A-Z]*", rest).group()
    if limits := re.search(r" in \[(\S+) - (\S+)\]", rest):
        option.least_most = limits.groups()
    if choices := re.search(r"\{(.*)\}", rest):
        option.choices = choices.group(1).split(",")
    return option


def parse(program, text):
    found = Help(program)
    section = ""
    for line in text.splitlines():
        entries = found.arguments if section == "Positionals" else found.options
        if header := HEADER.match(line):
            section = header.group(1)
        elif (further := FURTHER.match(line)) and entries:
            entries[-1].text = f"{entries[-1].text} {further.group(1)}".strip()
        elif (entry := ENTRY.match(line)) and (section == "Positionals" or entry.group(1).startswith("-")):
            entries.append(read_left(entry.group(1), section == "Positionals"))
            entries[-1].text = entry.group(2) or ""
        elif (usage := USAGE.match(line)) and not found.usage:
            # However it was called, it is shown by its name.
            found.usage = re.sub(rf"^\S*{re.escape(program)}(?= )", program, usage.group(1))
        elif line.strip():
            (found.remarks if found.options else found.purpose).append(line.strip())
    # The usage is shown elsewhere.
    found.purpose = [re.sub(":$", ".", line) for line in found.purpose]
    for option in found.options + found.arguments:
        if not option.choices and option.value and (words := LIST.match(option.text)):
            option.choices = words.group(1).split(", ")
    return found


def of_program(path):
    """Runs PATH --help."""
    run = subprocess.run([path, "--help"], capture_output=True, text=True, timeout=60, check=True)
    found = parse(os.path.basename(path), run.stdout)
    if not (found.purpose and found.usage and found.options):
        raise ValueError(f"{path} --help was not understood")
    return found
