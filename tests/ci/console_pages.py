"""Commands that stand in pages: how they are found, kept for a shell to run, and what they print compared.

The marks of blocks are explained by guide_test.py --help."""

import collections
import os
import re
import sys

MARK = re.compile(r"^<!--\s*(run|save):\s*(.*?)\s*-->$")
OPENS = re.compile(r"^(\s*)(```+|~~~+)\s*(\w*)\s*$")
NUMBER = re.compile(r"(?<![\w.])(?:\d+\.\d+|\d{2,})(?![\w.]*\w)")
UNITS = ("us", "ms", "s")
ANY_NUMBER = r">?[0-9]+(?:\.[0-9]+)?(?:e[-+]?[0-9]+)?"

Command = collections.namedtuple("Command", "line text")


class Block:
    """A fenced block: what is typed, what is shown, and how it is run."""

    def __init__(self, page, line, language):
        self.page = page
        self.line = line
        self.language = language
        self.words = set()  # of `run:`
        self.why_not = ""
        self.fresh = False  # it is run on a fresh Debian all the same
        self.save = ""
        self.lines = []
        self.commands = []
        self.shown = []

    def mark(self, kind, text):
        if kind == "save":
            self.save = text
            return
        first, _, rest = text.partition(",")
        if first in ("no", "fresh"):
            if not rest.strip():
                sys.exit(f"{self.page}:{self.line}: `run: {first}` without a reason")
            self.why_not = rest.strip()
            self.fresh = first == "fresh"
            return
        self.words = {word.strip() for word in text.split(",")}
        if self.words - {"fails", "sample", "root", "bed"}:
            sys.exit(f"{self.page}:{self.line}: unknown mark: run: {text}")

    def fails(self, place):
        """Whether that command is to end with another code than 0."""
        return "fails" in self.words and place == len(self.commands) - 1

    def split(self):
        """Tells commands from what they print."""
        for number, line in enumerate(self.lines, self.line + 1):
            if line.startswith("$ "):
                self.commands.append(Command(number, line[2:]))
            elif line.startswith("> ") and self.commands and not self.shown_after(self.commands[-1]):
                self.commands[-1] = self.commands[-1]._replace(text=self.commands[-1].text + "\n" + line[2:])
            elif not self.commands:
                sys.exit(f"{self.page}:{number}: a console block begins with a command, after `$ `")
            elif line.strip() and line.strip() != "…":
                self.shown.append((number, line))

    def shown_after(self, command):
        return bool(self.shown) and self.shown[-1][0] > command.line


def blocks_of(root, page):
    """The blocks of a page that are run or saved, in order."""
    found, marks, block, fence = [], [], None, ""
    with open(os.path.join(root, page), encoding="utf-8") as text:
        for number, line in enumerate(text.read().splitlines(), 1):
            if block is not None:
                if line.strip() == fence:
                    found.append(block)
                    block = None
                else:
                    block.lines.append(line.removeprefix(indent))
                continue
            opened = OPENS.match(line)
            mark = MARK.match(line.strip())
            if opened:
                indent, fence = opened.group(1), opened.group(2)
                block = Block(page, number, opened.group(3))
                for kind, words in marks:
                    block.mark(kind, words)
                marks = []
            elif mark:
                marks.append(mark.groups())
            elif line.strip():
                if marks:
                    sys.exit(f"{page}:{number}: a mark stands before no block")
    kept = [block for block in found if block.language == "console" or block.save]
    for block in kept:
        if block.language == "console":
            block.split()
    return kept


def pattern(line):
    """What a line that is shown matches."""
    parts = []
    pieces = re.split(r"(…|\s+)", line.strip())
    for place, piece in enumerate(pieces):
        if piece == "…":
            parts.append(".*")
        elif piece.isspace():
            parts.append(r"\s+")
        elif piece in UNITS and place > 1 and NUMBER.fullmatch(pieces[place - 2]):
            parts.append(f"(?:{'|'.join(UNITS)})")
        else:
            end = 0
            for number in NUMBER.finditer(piece):
                parts += [re.escape(piece[end : number.start()]), ANY_NUMBER]
                end = number.end()
            parts.append(re.escape(piece[end:]))
    # An ellipsis may stand for nothing, with the blank before it.
    return re.compile("".join(parts).replace(r"\s+.*", r"(?:\s.*)?"))


def not_printed(shown, printed):
    """Lines that are shown and were not printed; each printed line stands for one."""
    left = [line.strip() for line in printed.splitlines()]
    for number, line in shown:
        wanted = pattern(line)
        for place, candidate in enumerate(left):
            if wanted.fullmatch(candidate):
                del left[place]
                break
        else:
            yield number, line


def worked_seconds(word):
    """Of bash's `times`: 0m1.234s"""
    minutes, _, seconds = word.removesuffix("s").partition("m")
    return 60 * int(minutes) + float(seconds)


class Notes:
    """A folder with each command in a file of its own, and what came of them. Blocks have keys."""

    def __init__(self, folder, seen_as=None):
        self.folder = folder
        self.seen_as = seen_as or folder  # by the shell
        os.makedirs(folder, exist_ok=True)

    def kept(self, name):
        return os.path.join(self.folder, name)

    def typed(self, key, block, stop=False):
        """Lines of bash that carry out a block; with `stop` the shell ends at the first command that fails."""
        if block.save:
            text = "\n".join(block.lines) + "\n"
            return [f"cat >'{block.save}' <<'FLX_END_OF_FILE'\n{text}FLX_END_OF_FILE"]
        lines = [f"exec >>'{self.seen_as}/{key}.out' 2>&1"]
        for place, command in enumerate(block.commands):
            with open(self.kept(f"{key}.{place}.sh"), "w", encoding="utf-8") as text:
                text.write(command.text + "\n")
            name = f"{self.seen_as}/{key}.{place}"
            lines.append(f"{{ echo $PWD $EPOCHREALTIME; times; }} >'{name}.begun'")
            lines.append(f". '{name}.sh'; {{ echo $? $EPOCHREALTIME; times; }} >'{name}.ended'")
            if stop and not block.fails(place):
                lines.append(f"grep -q '^0 ' '{name}.ended' || exit 1")
        return lines

    def words(self, key, place, when):
        """What the shell wrote before and after a command, six words; empty until it has."""
        try:
            with open(self.kept(f"{key}.{place}.{when}"), encoding="utf-8") as text:
                words = text.read().split()
                return words if len(words) == 6 else []
        except FileNotFoundError:
            return []

    def code(self, key, place):
        """A command's exit code; empty if it did not end."""
        return "".join(self.words(key, place, "ended")[:1])

    def seconds(self, key, place):
        """(what passed, what processors worked) while a command ran."""
        begun, ended = self.words(key, place, "begun"), self.words(key, place, "ended")
        worked = sum(worked_seconds(word) for word in ended[2:]) - sum(worked_seconds(word) for word in begun[2:])
        return float(ended[1]) - float(begun[1]), worked

    def place(self, key, place):
        """The folder that a command was typed in, as the shell sees it."""
        return self.words(key, place, "begun")[0]

    def printed(self, key, home):
        """What a block printed, with the names that pages have for the home folder and the host."""
        printed = ""
        if os.path.exists(self.kept(key + ".out")):
            with open(self.kept(key + ".out"), encoding="utf-8", errors="replace") as text:
                printed = text.read()
        return re.sub(rf"\b{re.escape(os.uname().nodename)}\b", "myhost", printed.replace(home, "~"))


class Judged:
    """Whether a block did what its page says."""

    def __init__(self, block, key, notes, home):
        self.ran = 0
        self.compared = 0
        self.wrong = []
        printed = notes.printed(key, home)
        said = "".join(f"\n    | {line}" for line in printed.splitlines()[-60:])
        for place, command in enumerate(block.commands):
            code = notes.code(key, place) or "none, as it never ended"
            self.ran += 1
            if (code != "0") != block.fails(place) or not code.isdigit():
                wanted = "one other than 0" if block.fails(place) else "0"
                self.wrong.append(
                    f"{block.page}:{command.line}: $ {command.text}\n  its exit code is {code}, not {wanted}{said}"
                )
                return
        if "sample" in block.words:
            return
        self.compared = len(block.shown)
        for number, line in not_printed(block.shown, printed):
            self.wrong.append(f"{block.page}:{number}: this was not printed:\n    {line}\n  but{said}")
