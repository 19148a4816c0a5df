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
    <!-- run: fresh, WHY -->     it is not run here, but by follow_guide_test.py on a fresh Debian

The exit code is 1 if something is not as a page says, or a page cannot be understood. What ran is left in the scratch
folder then."""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time

sys.dont_write_bytecode = True
import console_pages

LONGEST_S = 200  # of one page


class Runner:
    """The pages' shell."""

    def __init__(self, root, scratch, prefix, as_root):
        self.root = root
        self.scratch = scratch
        self.home = os.path.join(scratch, "home")
        self.notes = console_pages.Notes(os.path.join(scratch, "notes"))
        self.as_root = as_root
        self.ran = 0
        self.compared = 0
        self.left_out = []
        self.wrong = []
        for folder in (self.home, os.path.join(scratch, "work")):
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

    def page(self, page, blocks):
        """Runs a page's blocks in one shell, each with a file for what it prints."""
        runnable = []
        script = [f"cd '{self.scratch}/work'"]
        for number, block in enumerate(blocks):
            why = block.why_not or self.cannot(block)
            if block.language == "console" and why:
                self.left_out.append(f"{page}:{block.line}: {len(block.commands)} commands are not run: {why}")
                continue
            key = f"{page.replace('/', '_')}.{number}"
            typed = self.notes.typed(key, block)
            if "bed" in block.words:
                typed = [f"pushd '{self.root}' >/dev/null", *typed, "popd >/dev/null"]
            script += typed
            if not block.save:
                runnable.append((key, block))
        script.append("kill $(jobs -p) 2>/dev/null; wait")
        self.shell(page, "\n".join(script))
        for key, block in runnable:
            judged = console_pages.Judged(block, key, self.notes, self.home)
            self.ran += judged.ran
            self.compared += judged.compared
            self.wrong += judged.wrong

    def shell(self, page, script):
        with open(self.notes.kept("shell.out"), "wb") as rest:
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
    blocks = {page: console_pages.blocks_of(root, page) for page in pages}
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
