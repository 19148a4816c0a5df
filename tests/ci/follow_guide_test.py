#!/usr/bin/env python3
"""Does on a fresh Debian what the guide's first chapter tells newcomers, and no more: from nothing to a page of a run.

    follow_guide_test.py PROJECT [--limit SECONDS] [--pictures FOLDER]

The chapter's files are saved and its commands typed in their order, by an ordinary user, in one shell. Only blocks
for root, and those that the page marks as not run, are left out, and named. Each command must end with 0 and print
what the page shows. Then there must be a trace of a program of the page's own under flx-run, with the calls of all
its ranks, and pages of flx_report, which a chromium outside opens without a complaint.

The machine is what debootstrap makes, with a user and sudo, which asks for no password. ADDRESS in the page, where the
project lies, is replaced by a copy of the commit that PROJECT has checked out; what is not committed is not in it.

What is counted is the time of the commands, the packages and the building among them. It is printed command by command,
with the time that processors worked for it, which says what is owed to other load. The sum must not be more than the
limit, ten minutes. Not counted are debootstrap, and what a person takes to read and to type. Exit code 77: root, the
network, debootstrap, git or a chromium is missing. --pictures keeps pictures of what the browser showed."""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, "../apps"))
import chromium
import console_pages
import trace_events

CHAPTER = "docs/tutorial.md"
USER = "reader"
HOME = f"/home/{USER}"
NOTES = "/srv/notes"
CLONE = "/srv/flx.git"
SECTIONS = 5  # of a page of flx_report, without figures beside its peer


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


def fail(what):
    sys.exit(f"FAILED: {what}")


def end(process):
    """Ends it with all that it started; what is in a namespace of its own goes with the first process there."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def run(*command):
    """Its exit code. It is ended where this program is."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        return process.wait()
    finally:
        end(process)


class Debian:
    """A fresh one, and the user who follows the chapter."""

    def __init__(self, project, folder):
        self.folder = folder
        begun = time.monotonic()
        code = run(FRESH, "make", folder, "sudo")
        if code != 0:
            sys.exit(code)
        print(f"not counted: {time.monotonic() - begun:.0f} s for debootstrap", flush=True)
        if run("git", "clone", "--quiet", "--bare", "--depth", "1", f"file://{project}", self.outside(CLONE)) != 0:
            fail("the project cannot be copied")
        os.makedirs(self.outside(NOTES))
        self.enter(
            "bash", "-ec",
            f"useradd --create-home --shell /bin/bash {USER}; chown -R {USER}: {NOTES} {CLONE};"
            f"echo '{USER} ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/{USER}",
        )

    def outside(self, path):
        return self.folder + path

    def enter(self, *command):
        if run(FRESH, "enter", self.folder, *command) != 0:
            fail(f"in the fresh Debian: {' '.join(command)}")

    def start(self, script):
        """A shell of the user, as it is when he or she has logged in."""
        with open(self.outside(f"{NOTES}/script"), "w", encoding="utf-8") as text:
            text.write(script)
        return subprocess.Popen(
            [FRESH, "enter", self.folder, "runuser", "--login", USER, "--command", f"exec bash {NOTES}/script"],
            stdin=subprocess.DEVNULL, start_new_session=True,
        )


def to_follow(project):
    """The chapter's blocks that a newcomer follows."""
    blocks = []
    for block in console_pages.blocks_of(project, CHAPTER):
        if block.words & {"root", "bed"}:
            print(f"{CHAPTER}:{block.line}: left out: it is for root")
        elif block.why_not and not block.fresh:
            print(f"{CHAPTER}:{block.line}: left out: {block.why_not}")
        else:
            for place, command in enumerate(block.commands):
                block.commands[place] = command._replace(text=command.text.replace("ADDRESS", f"file://{CLONE}"))
            blocks.append((f"{block.line:04}", block))
    return blocks


def follow(debian, blocks, limit):
    """Types the commands, and says how long each took; the sum."""
    notes = console_pages.Notes(debian.outside(NOTES), NOTES)
    script = [line for key, block in blocks for line in notes.typed(key, block, stop=True)]
    waiting = [(key, place, command) for key, block in blocks for place, command in enumerate(block.commands)]
    shell = debian.start("\n".join(script) + "\n")
    total = total_worked = 0
    until = time.monotonic() + 3 * limit
    try:
        while waiting:
            ended = shell.poll() is not None
            key, place, command = waiting[0]
            if notes.code(key, place):
                seconds, worked = notes.seconds(key, place)
                total += seconds
                total_worked += worked
                print(f"{seconds:8.1f} s {worked:8.1f} s  {command.text.splitlines()[0]}", flush=True)
                waiting.pop(0)
            elif ended:
                break
            elif time.monotonic() > until:
                print(f"stopped after {3 * limit:.0f} s, three times the limit")
                break
            else:
                time.sleep(0.2)
    finally:
        end(shell)
    judged = [console_pages.Judged(block, key, notes, HOME) for key, block in blocks if not block.save]
    # What comes after a command that failed was not typed.
    for one in judged:
        if one.wrong:
            fail("\n".join(one.wrong))
    ran, compared = sum(one.ran for one in judged), sum(one.compared for one in judged)
    print(f"{total:8.1f} s {total_worked:8.1f} s  for {ran} commands")
    print(f"{compared} lines of what they print are as the chapter shows them")
    return notes, total, total_worked


def made(debian, blocks, notes):
    """(trace, page, whether it is of a program that is not changed) of each page that the chapter makes."""
    found = []
    for key, block in blocks:
        for place, command in enumerate(block.commands):
            by_launcher = re.search(r"flx-run .*--report (\S+)\.html", command.text)
            by_itself = re.search(r"flx_report (\S+)\.json", command.text)
            for match in filter(None, (by_launcher, by_itself)):
                name = debian.outside(os.path.join(notes.place(key, place), match.group(1)))
                found.append((name + ".json", name + ".html", match is by_launcher))
    if not any(by_launcher for *_, by_launcher in found):
        fail(f"{CHAPTER} makes no page of a program under flx-run")
    return found


def look(traces_and_pages, program, pictures):
    """Reads the traces, and opens the pages."""
    with chromium.Page(program) as page:
        for trace, path, _ in traces_and_pages:
            events = trace_events.read(trace)
            ranks = events["otherData"]["ranks"]
            calls = [len(trace_events.calls_of(events, rank)) for rank in range(ranks)]
            if ranks < 2 or min(calls) < 100 or len(set(calls)) > 1:
                fail(f"{trace}: calls of {ranks} ranks: {calls}")
            page.said.clear()
            page.open(path, 1280, 900, "light")
            sections = page.value("document.querySelectorAll('section h2').length")
            table = page.value("document.querySelector('#calls table').textContent")
            if page.said or sections != SECTIONS or "allreduce" not in table:
                fail(f"{path}: {sections} sections; calls: {table}; the browser says {page.said}")
            name = os.path.basename(path)
            if pictures:
                page.picture(os.path.join(pictures, name.removesuffix(".html") + ".png"), whole=True)
            print(f"{name}: {calls[0]} calls of each of {ranks} ranks in the trace, and the page opens in a browser")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("project")
    parser.add_argument("--limit", type=float, default=600)
    parser.add_argument("--pictures")
    arguments = parser.parse_args()
    project = os.path.abspath(arguments.project)
    code = run(FRESH, "can")
    if code != 0:
        sys.exit(code)
    program = chromium.find()
    if program is None:
        skip("chromium is missing; ci/setup --browser installs it")
    if not shutil.which("git") or not os.path.exists(os.path.join(project, ".git")):
        skip("git, or a repository to clone, is missing")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))
    scratch = tempfile.mkdtemp()
    try:
        blocks = to_follow(project)
        debian = Debian(project, os.path.join(scratch, "debian"))
        notes, total, worked = follow(debian, blocks, arguments.limit)
        look(made(debian, blocks, notes), program, arguments.pictures)
    finally:
        # What was killed may still write for a moment.
        for _ in range(5):
            if subprocess.run(["rm", "-rf", "--one-file-system", scratch], check=False).returncode == 0:
                break
            time.sleep(1)
    if total > arguments.limit >= worked:
        skip(f"the commands took {total:.0f} s, of which processors worked {worked:.0f}: this machine has other work")
    if total > arguments.limit:
        fail(f"the commands took {total:.0f} s, more than {arguments.limit:.0f}")


FRESH = os.path.join(HERE, "fresh_debian.sh")

if __name__ == "__main__":
    main()
