#!/usr/bin/env python3
"""flx_schedule as a whole: schedule_test.py FLX_SCHEDULE

It exports what its reader reads, also from MSCCL's XML; what it writes as GOAL is carried out here, and each message
has its receive; pictures are XML. And it refuses: 20 mutations of a right schedule, each with the element named, XML
that is not right, and command lines."""

import copy
import json
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree

sys.dont_write_bytecode = True
import msccl_programs

PROGRAM = os.path.abspath(sys.argv[1])
RIGHT = "right: each element of each output is what it should be"


def run(*arguments, code=0):
    done = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == code, f"{arguments} ended with {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout if code == 0 else done.stderr


def write(name, text):
    with open(name, "w", encoding="utf-8") as file:
        file.write(text)
    return name


def read(name):
    with open(name, encoding="utf-8") as file:
        return file.read()


class Goal:
    """GOAL as LogGOPSim reads it, and whether it can be carried out."""

    OPERATION = re.compile(r"(\w+): (?:(send|recv) (\d+)b (?:to|from) (\d+) tag (\d+)|calc (\d+))$")
    REQUIRES = re.compile(r"(\w+) requires (\w+)$")

    def __init__(self, text):
        lines = text.splitlines()
        self.ranks = int(lines[0].removeprefix("num_ranks "))
        self.messages = {}  # (sender, receiver, tag) -> [bytes sent, bytes received]
        self.operations = 0
        rank = -1
        labels = set()
        for line in lines[1:]:
            if line == f"rank {rank + 1} {{":
                rank += 1
                labels = set()
                continue
            if line == "}":
                continue
            if requires := self.REQUIRES.match(line):
                assert set(requires.groups()) <= labels, f"rank {rank}: {line}: no such label before"
                continue
            operation = self.OPERATION.match(line)
            assert operation, f"this is no GOAL: {line}"
            label, kind, size, peer, tag, _ = operation.groups()
            assert label not in labels, f"rank {rank}: {label} stands twice"
            labels.add(label)
            self.operations += 1
            if kind:
                pair = (rank, int(peer)) if kind == "send" else (int(peer), rank)
                sides = self.messages.setdefault((*pair, int(tag)), [None, None])
                side = 0 if kind == "send" else 1
                assert sides[side] is None, f"rank {rank}: {line}: another one has peer and tag"
                sides[side] = int(size)
        assert rank + 1 == self.ranks

    def check(self):
        for message, (sent, received) in self.messages.items():
            assert sent is not None and sent == received, f"{message}: {sent} sent, {received} received"
        return sum(sent for sent, _ in self.messages.values())


def test_exports():
    cases = [
        ("allreduce", "ring", ["--ranks", "4"], "allreduce of 4 ranks by ring: 4 blocks, 2 phases, "),
        ("allreduce", "recursive_doubling", ["--ranks", "7"], "1 block, "),
        ("allreduce", "lanes(direct,ring)", ["--hosts", "2,3"], "by lanes-direct-ring"),
        ("bcast", "double_binary_tree", ["--ranks", "6", "--root", "2"], "bcast of 6 ranks"),
        ("scan", "prefix_chain", ["--ranks", "3"], "3 ranks"),
        ("barrier", "direct", ["--ranks", "3"], "barrier"),
    ]
    for collective, algorithm, options, says in cases:
        out = run(collective, algorithm, *options, "--json", "a.json", "--goal", "a.goal", "--svg", "a.svg")
        assert RIGHT in out and says in out, out
        out = run("--import", "a.json", "--json", "b.json")
        assert RIGHT in out and says in out, out
        assert read("a.json") == read("b.json"), f"{algorithm}: it does not come back"
        Goal(read("a.goal")).check()
        picture = ElementTree.fromstring(read("a.svg"))
        arrows = [line for line in picture.iter("{http://www.w3.org/2000/svg}line") if line.get("class") == "message"]
        steps = [step for rank in json.loads(read("a.json"))["schedules"] for step in rank["steps"]]
        assert len(arrows) == sum(step["do"] == "send" for step in steps), f"{algorithm}: {len(arrows)} arrows"
    assert run("allreduce", "ring", "--json", "-") == read_json_of("allreduce", "ring")
    assert "6 hops" in run("allreduce", "ring", "--ranks", "4")
    assert "2 hops" in run("allreduce", "direct", "--ranks", "9")


def read_json_of(*arguments):
    run(*arguments, "--json", "c.json")
    return read("c.json")


def test_goal():
    """A ring sends 2 (n-1)/n of the vector from each rank, whatever it is cut into."""
    for options, operations in ((["--bytes", "4M"], 1), (["--bytes", "4M", "--cell", "64K"], 16)):
        run("allreduce", "ring", "--ranks", "4", *options, "--goal", "a.goal")
        goal = Goal(read("a.goal"))
        assert goal.check() == 4 * 2 * 3 * (1 << 20)
        assert len(goal.messages) == 24 * operations, len(goal.messages)
    run("allreduce", "ring", "--ranks", "4", "--bytes", "12", "--goal", "a.goal")  # a block has no element
    assert Goal(read("a.goal")).check() == 12 * 6
    run("allreduce", "ring", "--bytes", "1G", "--cell", "4", "--goal", "none.goal", code=1)
    assert not os.path.exists("none.goal")


def mutations(right):
    """20 copies with something wrong, and a pattern of the words that must name it."""

    def steps(rank):
        return made["schedules"][rank]["steps"]

    def first(rank, kind):
        return next(number for number, step in enumerate(steps(rank)) if step["do"] == kind)

    def at(rank, number):
        return rf"rank {rank}, step {number} \("

    changes = []

    def change(what):
        changes.append(what)

    @change
    def _():  # a send to another rank
        number = first(1, "send")
        steps(1)[number]["peer"] = 3
        return at(1, number)

    @change
    def _():  # a send to itself
        number = first(2, "send")
        steps(2)[number]["peer"] = 2
        return at(2, number)

    @change
    def _():  # to a rank that there is not
        number = first(0, "send")
        steps(0)[number]["peer"] = 4
        return at(0, number)

    @change
    def _():  # a receive less
        number = first(3, "recv")
        del steps(3)[number:]
        return "the peer does not receive this"

    @change
    def _():  # a send more
        steps(2).append(dict(steps(2)[first(2, "send")]))
        return at(2, len(steps(2)) - 1)

    @change
    def _():  # a receive of another block
        number = first(1, "recv")
        steps(1)[number]["block"] = (steps(1)[number]["block"] + 1) % 4
        return at(1, number) + "|rank 0, step"

    @change
    def _():  # a block that there is not
        number = first(0, "recv_reduce")
        steps(0)[number]["block"] = 4
        return at(0, number)

    @change
    def _():  # a phase that there is not
        number = first(0, "recv")
        steps(0)[number]["phase"] = 2
        return at(0, number)

    @change
    def _():  # the phase of another message
        number = first(2, "recv")
        steps(2)[number]["phase"] = 0
        return "rank [0-9], step [0-9]+ "

    @change
    def _():  # a sum that is not divided
        number = max(n for n, step in enumerate(steps(2)) if step["do"] == "recv_reduce")
        del steps(2)[number]["finish"]
        return "output element [0-9]+ .*not finished"

    @change
    def _():  # one that is divided too early
        number = first(1, "recv_reduce")
        steps(1)[number]["finish"] = True
        return "output element [0-9]+"

    @change
    def _():  # the contribution is left out
        number = first(0, "recv_reduce")
        step = steps(0)[number]
        step["do"] = "recv"
        del step["from"]
        step.pop("finish", None)
        return "output element [0-9]+"

    @change
    def _():  # it is added in another order
        number = first(3, "recv_reduce")
        steps(3)[number]["received_first"] = False
        return "output element [0-9]+ .*declared order"

    @change
    def _():  # a partial sum is sent before it was made
        number = next(n for n, step in enumerate(steps(1)) if step["do"] == "send" and "after" in step)
        del steps(1)[number]["after"]
        return at(1, number)

    @change
    def _():  # it depends on itself
        number = next(n for n, step in enumerate(steps(2)) if "after" in step)
        steps(2)[number]["after"] = [number]
        return f"rank 2, step {number}:"

    @change
    def _():  # the input is sent where the sum is wanted
        number = max(n for n, step in enumerate(steps(0)) if step["do"] == "send")
        steps(0)[number]["from"] = "input"
        return "output element [0-9]+"

    @change
    def _():  # the input is written
        number = first(2, "recv")
        steps(2)[number]["to"] = "input"
        return at(2, number) + ".*writes the input"

    @change
    def _():  # scratch that there is not
        number = first(1, "recv_reduce")
        steps(1)[number]["to"] = "scratch 0"
        return at(1, number)

    @change
    def _():  # ranks that wait for each other
        for rank in range(4):
            last = len(steps(rank)) - 1
            moved = steps(rank).pop(last)
            moved.pop("after", None)
            for step in steps(rank):
                step["after"] = [number + 1 for number in step.get("after", [])]
            steps(rank).insert(0, moved)
            steps(rank)[1]["after"] = [0]
        return "deadlock: " + at(0, "[0-9]+") + ".*cells left"

    @change
    def _():  # two ranks have each other's schedules
        made["schedules"][0]["steps"], made["schedules"][1]["steps"] = steps(1), steps(0)
        return at(0, "[0-9]+")

    for what in changes:
        made = copy.deepcopy(right)
        expected = what()
        yield made, expected


def test_mutations():
    run("allreduce", "ring", "--ranks", "4", "--json", "right.json")
    right = json.loads(read("right.json"))
    refused = 0
    for number, (made, expected) in enumerate(mutations(right)):
        write("wrong.json", json.dumps(made))
        says = run("--import", "wrong.json", code=1)
        assert says.startswith("flx_schedule: wrong.json: "), says
        assert re.search(expected, says), f"mutation {number}: {says} has no {expected}"
        assert re.search(r"rank \d", says), says
        refused += 1
    assert refused == 20, refused
    print(f"{refused} of 20 mutations are refused")


def test_msccl():
    for name, build in msccl_programs.PROGRAMS.items():
        for ranks in (2, 4, 8, 16) if name == "doubling" else (2, 3, 4, 5, 8, 16):
            write("a.xml", build(ranks))
            out = run("--import", "a.xml", "--json", "a.json")
            assert RIGHT in out and f"of {ranks} ranks by {name}" in out, out
            run("--import", "a.json")
    text = msccl_programs.ring(3)
    wrong = [
        ('coll="allreduce"', 'coll="alltoall"', '"coll" is "alltoall"; FLX takes allreduce'),
        ('ngpus="3"', 'ngpus="4"', '"ngpus" is 4, and there are 3'),
        ('inplace="1"', 'inplace="2"', '"inplace" is "2"'),
        ('nchunksperloop="6"', "", '"nchunksperloop" is not there'),
        ('<gpu id="1"', '<gpu id="2"', 'gpu 1: "id" is "2"'),
        ('send="1"', 'send="7"', 'gpu 0, tb 0: "send" is "7"'),
        ('send="1" recv="2" chan="1"', 'send="1" recv="2" chan="0"', "gpu 0, tb 1: another thread block"),
        ('s="1" type="rrs"', 's="2" type="rrs"', 'gpu 0, tb 0, step 1 (rrs): "s" is "2"'),
        ('type="rrs"', 'type="put"', "gpu 0, tb 0, step 1 (put): the type is not known"),
        ('srcbuf="i"', 'srcbuf="x"', 'gpu 0, tb 0, step 0 (s): "srcbuf" is "x"'),
        ('srcoff="0"', 'srcoff="-3"', 'gpu 0, tb 0, step 0 (s): "srcoff" is "-3"'),
        ('srcoff="0"', 'srcoff="6"', "gpu 0, tb 0, step 0 (s): it reads chunk 6 of i"),
        ('srcbuf="i"', 'srcbuf="s"', "gpu 0, tb 0, step 0 (s): it reads chunk 0 of s"),
        ('cnt="1"', 'cnt="2"', "gpu 1, tb 0, step 1 (rrs): it receives 1 chunks at once, and GPU 0 sends 2"),
        ('depid="-1" deps="-1"', 'depid="5" deps="0"', "gpu 0, tb 0, step 0 (s): it waits for tb 5"),
        ('depid="-1" deps="-1"', 'depid="0" deps="3"', "gpu 0, tb 0, step 0 (s): it never runs"),
        ('type="rrcs"', 'type="rcs"', "output element"),
        ("<algo", "<algo<", "this is no XML: line 1"),
    ]
    refuse(text, wrong)
    first = 'type="re" srcbuf="s" srcoff="1" dstbuf="i" dstoff="0"'
    refuse(
        msccl_programs.all_pairs(3),
        [
            (first, first.replace('"s" srcoff="1"', '"i" srcoff="1"'), "gpu 0, tb 0, step 2 (re): it adds two chunks"),
            ('srcbuf="s" srcoff="2"', 'srcbuf="s" srcoff="1"', "gpu 0, tb 0, step 3 (re): it reads chunk 1 of s"),
            (first, first.replace('"i" dstoff="0"', '"i" dstoff="1"'), "step 2 (re): it adds chunk 0, which came"),
        ],
    )
    refuse(msccl_programs.doubling(4), [('nchunksperloop="4"', 'nchunksperloop="8"', "into 8 chunks for 4 GPUs")])
    # Each sends what it adds to, and in place would overwrite it.
    swap = msccl_programs.Program("swap", "allreduce", 2, 1)
    for rank in range(2):
        block = swap.block(rank, 1 - rank, 1 - rank, 0)
        swap.step(block, "s", ("i", 0), ("i", 0))
        swap.step(block, "rrc", ("i", 0), ("i", 0))
    refuse(swap.text(), [("", "", "deadlock: rank ")])


def refuse(text, wrong):
    """`wrong`: what is replaced, by what, and words that say why that is refused."""
    for old, new, why in wrong:
        assert old in text, old
        write("wrong.xml", text.replace(old, new, 1))
        says = run("--import", "wrong.xml", code=1)
        assert says.startswith("flx_schedule: wrong.xml: ") and why in says, f"{old} by {new}: {says}"


def test_command_lines():
    cases = [
        (["alltoall", "ring"], 1, "no collective with schedules; there are allreduce, "),
        (["allreduce", "rings"], 1, 'allreduce of 4 ranks is not served by "rings"; there are direct, ring'),
        (["bcast", "ring", "--root", "4"], 1, "--root is 4; ranks are 0 to 3"),
        (["allreduce", "ring", "--name", "a b"], 1, '--name is "a b"'),
        (["allreduce", "ring", "--json", "/there/is/none"], 1, "/there/is/none: this file cannot be written"),
        (["--import", "/there/is/none"], 1, "/there/is/none: this file cannot be read"),
        (["--import", "."], 1, ".: this file cannot be read"),
    ]
    for arguments, code, why in cases:
        says = run(*arguments, code=code)
        assert why in says, f"{arguments}: {says}"
    for arguments in (["allreduce"], [], ["allreduce", "ring", "--bytes", "3"], ["allreduce", "ring", "--ranks", "0"]):
        done = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, check=False)
        assert done.returncode not in (0, 1), f"{arguments}: {done.returncode}"


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for test in (test_exports, test_goal, test_mutations, test_msccl, test_command_lines):
            test()


main()
