"""Runs the programs that docs/python.md shows, as files of the names that it gives them: page_test.py PAGE"""

import os
import re
import socket
import subprocess
import sys
import tempfile

try:
    import numpy  # noqa: F401
    from mpi4py import MPI  # noqa: F401
    can_sum = True
except ImportError:
    can_sum = False


def run(names, environments, folder):
    """Starts one process for each environment and returns what they wrote, joined in order of their lines."""
    whole_lines = {"PYTHONUNBUFFERED": ""}
    started = [subprocess.Popen([sys.executable, name], cwd=folder, env={**os.environ, **environment, **whole_lines},
                                text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
               for name, environment in zip(names, environments)]
    written = [process.communicate(timeout=100)[0] for process in started]
    for name, process, text in zip(names, started, written):
        if process.returncode != 0:
            sys.exit(f"FAILED: {name} ended with {process.returncode}: {text}")
    return sorted("".join(written).splitlines())


def expect(name, got, wanted):
    if got != wanted:
        sys.exit(f"FAILED: {name} wrote {got}, not {wanted}")
    print("ok:", name)


def free_port():
    with socket.socket() as probe:
        probe.bind(("", 0))
        return str(probe.getsockname()[1])


with open(sys.argv[1], encoding="utf-8") as page:
    saved = dict(re.findall(r"<!-- save: (\S+) -->\n```python\n(.*?)```\n", page.read(), re.DOTALL))
if not {"alone.py", "notebook.py", "sums.py"} <= set(saved):
    sys.exit(f"FAILED: the page has no more than {sorted(saved)}")
with tempfile.TemporaryDirectory() as folder:
    for name, text in saved.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(text.replace("29501", free_port()))
    store = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port(), "WORLD_SIZE": "2"}
    expect("alone.py", run(["alone.py"] * 2, [{**store, "RANK": rank} for rank in "01"], folder), ["0 FLX", "1 FLX"])
    expect("notebook.py", run(["notebook.py"], [{}], folder), ["1 hello", "2 hello"])
    if can_sum:
        expect("sums.py", run(["sums.py"], [{}], folder), ["0.0 0.0"])
    else:
        print("skipped: sums.py, as numpy or mpi4py is not installed")
