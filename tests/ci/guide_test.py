#!/usr/bin/env python3
"""Types the commands of the guide's pages, and compares what is printed with what the pages show.

    guide_test.py PROJECT BUILD [PAGE...]   the pages given; without any, all of docs/*.md and README.md that have commands
        --prefix DIR      FLX is installed there already; else it is installed from BUILD into the scratch folder
        --scratch DIR     where the commands run, and ~ is (BUILD/guide)
        --list            the commands and what is done with them; nothing is run

Commands stand in fenced blocks of the language `console`, after `$ ` (`> ` goes on with the line before). All commands
of a page run in one shell, one page after the other in one folder, with FLX in ~/flx and its programs in PATH. Each must
end with 0, and each line that is shown must be among those that its block printed, in whatever order. Numbers of two
digits and more, or with a point, stand for any number, after one `s`, `ms` and `us` for each other, `…` for anything and
`myhost` for the name of this host. Comments before a block change that, with these words and commas between them:

    <!-- save: NAME -->          the block (of any language) is the file NAME, which later commands find
    <!-- run: fails -->          its last command does not end with 0
    <!-- run: sample -->         what it prints differs between machines, and is not compared
    <!-- run: root -->           it is run by root alone
    <!-- run: bed -->            so is this, in the project's folder, as it uses ci/rails
    <!-- run: no, WHY -->        it is not run

The exit code is 1 if something is not as a page says, or a page cannot be understood. What ran is left in the scratch
folder then."""

import argparse
import collections
import os
import re
import shutil
import signal
import subprocess
import sys
import time

LONGEST_S = 200  # of one page
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
        self.save = ""
        self.lines = []
        self.commands = []
        self.shown = []

    def mark(self, kind, text):
        if kind == "save":
            self.save = text
            return
        first, _, rest = text.partition(",")
        if first == "no":
            if not rest.strip():
                sys.exit(f"{self.page}:{self.line}: `run: no` without a reason")
            self.why_not = rest.strip()
            return
        self.words = {word.strip() for word in text.split(",")}
        if self.words - {"fails", "sample", "root", "bed"}:
            sys.exit(f"{self.page}:{self.line}: unknown mark: run: {text}")

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


class Runner:
    """The pages' shell."""

    def __init__(self, root, scratch, prefix, as_root):
        self.root = root
        self.scratch = scratch
        self.home = os.path.join(scratch, "home")
        self.notes = os.path.join(scratch, "notes")
        self.as_root = as_root
        self.ran = 0
        self.compared = 0
        self.left_out = []
        self.wrong = []
        for folder in (self.home, self.notes, os.path.join(scratch, "work")):
            os.makedirs(folder, exist_ok=True)
        os.symlink(prefix, os.path.join(self.home, "flx"))
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("FLX_")}
        self.environment.update(
            HOME=self.home,
            PATH=f"{self.home}/flx/bin:{os.environ['PATH']}",
            PKG_CONFIG_PATH=f"{self.home}/flx/lib/pkgconfig",
            OMPI_ALLOW_RUN_AS_ROOT="1",
            OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
            OMPI_MCA_rmaps_base_oversubscribe="1",
            OMPI_MCA_hwloc_base_binding_policy="none",
            LC_ALL="C.UTF-8",
        )

    def cannot(self, block):
        """Why a block cannot run here; empty where it can."""
        return "only root can do that here" if block.words & {"root", "bed"} and not self.as_root else ""

    def note(self, name):
        return os.path.join(self.notes, name)

    def page(self, page, blocks):
        """Runs a page's blocks in one shell, each with a file for what it prints."""
        runnable = []
        script = [f"cd '{self.scratch}/work'"]
        for number, block in enumerate(blocks):
            why = block.why_not or self.cannot(block)
            if block.language == "console" and why:
                self.left_out.append(f"{page}:{block.line}: {len(block.commands)} commands are not run: {why}")
                continue
            if block.save:
                text = "\n".join(block.lines) + "\n"
                script.append(f"cat >'{block.save}' <<'FLX_END_OF_FILE'\n{text}FLX_END_OF_FILE")
                continue
            key = f"{page.replace('/', '_')}.{number}"
            script.append(f"exec >>'{self.note(key)}.out' 2>&1")
            if "bed" in block.words:
                script.append(f"pushd '{self.root}' >/dev/null")
            for place, command in enumerate(block.commands):
                with open(self.note(f"{key}.{place}.sh"), "w", encoding="utf-8") as text:
                    text.write(command.text + "\n")
                script.append(f". '{self.note(key)}.{place}.sh'; echo $? >'{self.note(key)}.{place}.code'")
            if "bed" in block.words:
                script.append("popd >/dev/null")
            runnable.append((key, block))
        script.append("kill $(jobs -p) 2>/dev/null; wait")
        self.shell(page, "\n".join(script))
        for key, block in runnable:
            self.judge(key, block)

    def shell(self, page, script):
        with open(self.note("shell.out"), "wb") as rest:
            shell = subprocess.Popen(
                ["bash", "-c", script],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=rest,
                stderr=rest,
                start_new_session=True,
            )
            try:
                shell.wait(LONGEST_S)
            except subprocess.TimeoutExpired:
                self.wrong.append(f"{page}: its commands took more than {LONGEST_S} s")
                os.killpg(shell.pid, signal.SIGKILL)
                shell.wait()

    def judge(self, key, block):
        printed = ""
        if os.path.exists(self.note(key + ".out")):
            with open(self.note(key + ".out"), encoding="utf-8", errors="replace") as text:
                printed = text.read()
        printed = printed.replace(self.home, "~")
        printed = re.sub(rf"\b{re.escape(os.uname().nodename)}\b", "myhost", printed)
        said = "".join(f"\n    | {line}" for line in printed.splitlines()[-60:])
        for place, command in enumerate(block.commands):
            code = "none, as it never ended"
            if os.path.exists(self.note(f"{key}.{place}.code")):
                with open(self.note(f"{key}.{place}.code"), encoding="ascii") as text:
                    code = text.read().strip()
            self.ran += 1
            fails = "fails" in block.words and place == len(block.commands) - 1
            if (code != "0") != fails or not code.isdigit():
                wanted = "one other than 0" if fails else "0"
                self.wrong.append(
                    f"{block.page}:{command.line}: $ {command.text}\n  its exit code is {code}, not {wanted}{said}"
                )
                return
        if "sample" in block.words:
            return
        self.compared += len(block.shown)
        for number, line in not_printed(block.shown, printed):
            self.wrong.append(f"{block.page}:{number}: this was not printed:\n    {line}\n  but{said}")


def install(build, prefix):
    made = subprocess.run(["cmake", "--install", build, "--prefix", prefix], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        sys.exit(f"FLX cannot be installed from {build}:\n{made.stdout}{made.stderr}")


def is_root():
    """Whether namespaces can be had here, and so hosts of ci/rails."""
    try:
        tried = ["unshare", "--mount", "--net", "--pid", "--fork", "true"]
        return os.geteuid() == 0 and subprocess.run(tried, stderr=subprocess.DEVNULL, check=False).returncode == 0
    except FileNotFoundError:
        return False


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("project")
    parser.add_argument("build")
    parser.add_argument("pages", nargs="*")
    parser.add_argument("--prefix")
    parser.add_argument("--scratch")
    parser.add_argument("--list", action="store_true")
    arguments = parser.parse_args()
    root = os.path.abspath(arguments.project)
    pages = arguments.pages
    if not pages:
        pages = [name for name in READING_ORDER if os.path.exists(os.path.join(root, name))]
        pages += sorted(
            f"docs/{name}"
            for name in os.listdir(os.path.join(root, "docs"))
            if name.endswith(".md") and f"docs/{name}" not in pages
        )
    blocks = {page: blocks_of(root, page) for page in pages}
    blocks = {page: some for page, some in blocks.items() if some}
    if arguments.list:
        for some in blocks.values():
            for block in some:
                for command in block.commands:
                    how = f"not run: {block.why_not}" if block.why_not else ", ".join(sorted(block.words)) or "run"
                    print(f"{block.page}:{command.line}: {how}: {command.text}")
        return
    scratch = os.path.abspath(arguments.scratch or os.path.join(arguments.build, "guide"))
    shutil.rmtree(scratch, ignore_errors=True)
    os.makedirs(scratch)
    prefix = os.path.abspath(arguments.prefix or os.path.join(scratch, "prefix"))
    if not arguments.prefix:
        install(arguments.build, prefix)
    runner = Runner(root, scratch, prefix, is_root())
    for page, some in blocks.items():
        begun = time.monotonic()
        runner.page(page, some)
        print(f"{page}: {time.monotonic() - begun:.1f} s", flush=True)
    print("\n".join(runner.left_out + runner.wrong))
    print(
        f"{runner.ran} commands of {len(blocks)} pages were run, {runner.compared} lines of what they print compared; "
        f"{len(runner.left_out)} blocks were not run; {len(runner.wrong)} things are wrong"
    )
    if runner.wrong:
        sys.exit(1)
    shutil.rmtree(scratch, ignore_errors=True)


# Later pages use files that earlier ones made.
READING_ORDER = ("README.md", "docs/tutorial.md")

if __name__ == "__main__":
    main()
