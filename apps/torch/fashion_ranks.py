"""Starts the ranks of fashion.py on this host, or on emulated ones (ci/rails), and hears what they print."""
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
RAILS = HERE.parents[1] / "ci/rails"
MANAGEMENT = "169.254.77.1"  # the first host's address on the network that is neither shaped nor cut
RATES = "800,400,200"


class NoBed(Exception):
    """There can be no emulated hosts here, and why."""


class Bed:
    """Emulated hosts for the time of a `with`; they see the folder `shared` wherever it lies."""

    def __init__(self, shared, hosts=2, rates=RATES):
        self.shared, self.hosts, self.rates, self.name = shared, hosts, rates, f"fashion{os.getpid()}"

    def __enter__(self):
        made = self.command("create", "--owner", os.getpid(), "--share", self.shared, self.hosts, self.rates)
        if made.returncode == 77:
            raise NoBed(made.stderr.strip())
        if made.returncode != 0:
            raise SystemExit(made.stderr.strip())
        return self

    def __exit__(self, *_):
        self.command("destroy")

    def __call__(self, *words):
        done = self.command(*words)
        if done.returncode != 0:
            raise RuntimeError(f"ci/rails {' '.join(map(str, words))}: {done.stderr.strip()}")

    def command(self, *words):
        return subprocess.run(self.words(*words), capture_output=True, text=True, check=False)

    def words(self, *words):
        return [str(word) for word in (RAILS, "--bed", self.name, *words)]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def leaf(pid):
    """The process at the end of the chain that began with `pid`: nsenter and the like start one child each."""
    while True:
        children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if not children:
            return pid
        pid = int(children[0])


class Ranks:
    """Processes of fashion.py, which end with a `with`. On a bed the first half is on its first host, and so on."""

    def __init__(self, count, words, bed=None, environment=()):
        self.lines = [[] for _ in range(count)]
        self.processes, self.readers = [], []
        common = {"MASTER_ADDR": MANAGEMENT if bed else "127.0.0.1", "MASTER_PORT": str(free_port()),
                  "WORLD_SIZE": str(count), "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1",
                  "PYTHONDONTWRITEBYTECODE": "1", "FLX_CACHE": "none", **dict(environment)}
        try:
            for rank in range(count):
                command = [sys.executable, HERE / "fashion.py", *words]
                if bed:
                    command = bed.words("exec", 1 + rank * bed.hosts // count, *command)
                process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL,
                                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                           env=os.environ | common | {"RANK": str(rank)})
                self.processes.append(process)
                reader = threading.Thread(target=self.read, args=(rank,), daemon=True)
                reader.start()
                self.readers.append(reader)
        except BaseException:
            self.kill()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    def read(self, rank):
        for line in self.processes[rank].stdout:
            self.lines[rank].append(line.rstrip())

    def text(self):
        return "\n".join(f"rank {rank}: {line}" for rank, lines in enumerate(self.lines) for line in lines)

    def reach(self, step, limit=120):
        """Waits until rank 0 says that it has taken so many steps."""
        until = time.monotonic() + limit
        while self.steps() < step:
            if self.processes[0].poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"rank 0 did not come to step {step}:\n{self.text()}")
            time.sleep(0.005)

    def steps(self):
        said = [line for line in self.lines[0] if line.startswith("step ")]
        return int(said[-1].split()[1].rstrip(":")) if said else 0

    def signal(self, rank, signum):
        os.kill(leaf(self.processes[rank].pid), signum)

    def resume(self, rank):
        """nsenter stops when its child does, and so has to be told as well."""
        self.signal(rank, signal.SIGCONT)
        self.processes[rank].send_signal(signal.SIGCONT)

    def end(self, limit=240):
        """Exit codes. What has not ended in time is killed, and has none."""
        until = time.monotonic() + limit
        codes = []
        for process in self.processes:
            try:
                codes.append(process.wait(max(0.1, until - time.monotonic())))
            except subprocess.TimeoutExpired:
                codes.append(None)
        self.kill()
        for reader in self.readers:
            reader.join(10)
        return codes

    def kill(self):
        for rank, process in enumerate(self.processes):
            if process.poll() is None:
                try:
                    self.signal(rank, signal.SIGKILL)
                    process.send_signal(signal.SIGCONT)
                except (ProcessLookupError, FileNotFoundError):
                    pass
                process.kill()
                process.wait()
