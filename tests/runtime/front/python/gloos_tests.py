"""PyTorch's own tests of Gloo, with FLX where Gloo was.

    python3 gloos_tests.py --backend flx SOURCES             all of them, each in a process of its own
    python3 gloos_tests.py --backend gloo SOURCES            the same with Gloo, to compare with
    python3 gloos_tests.py --backend flx SOURCES NAME...     those alone, and what they print

SOURCES: where PyTorch's sources of the installed version are unpacked (`apt-get source pytorch`); its tests are not
installed. Nothing of them is changed but that ProcessGroupGloo makes a group of FLX's, and that ranks are forked, which
saves each of them the import. For each test there is a line: its name, `ok`, `skipped` or `failed`, and seconds.
"""

import argparse
import datetime
import os
import pathlib
import signal
import sys
import time
import types
import unittest

LIMIT_S = 120  # a test
RANKS = "3"    # where a test takes as many as it is given

os.environ.setdefault("BACKEND", "gloo")
os.environ.setdefault("WORLD_SIZE", RANKS)

try:
    import expecttest  # noqa: F401
except ImportError:  # Debian does not have it, and of it these tests need the class alone
    sys.modules["expecttest"] = types.SimpleNamespace(TestCase=unittest.TestCase, ACCEPT=True)

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.nn.parallel._replicated_tensor_ddp_utils  # noqa: E402
from torch.testing._internal import common_distributed  # noqa: E402


def put_flx_there():
    import flx.torch
    gloo = dist.ProcessGroupGloo

    class InItsPlace:
        _Options = gloo._Options
        create_device = gloo.create_device
        create_default_device = gloo.create_default_device

        def __new__(cls, store, rank, size, options=None, timeout=datetime.timedelta(minutes=30)):
            if isinstance(options, datetime.timedelta):
                timeout = options
            elif options is not None:
                timeout = options._timeout
            return flx.torch._torch.process_group(store, rank, size, timeout)

    # Its checks beside a group's collectives take Gloo's own group and nothing else.
    wrap = dist.distributed_c10d._create_process_group_wrapper

    def wrap_with_gloo(*given, **named):
        dist.distributed_c10d.ProcessGroupGloo = gloo
        try:
            return wrap(*given, **named)
        finally:
            dist.distributed_c10d.ProcessGroupGloo = InItsPlace

    dist.distributed_c10d._create_process_group_wrapper = wrap_with_gloo

    # Profilers know operations by the backend's name.
    from torch.testing._internal.distributed import distributed_test
    of_name = distributed_test.get_profiling_event

    def events(name, profiler):
        found = of_name(name.replace("gloo:", "flx:"), profiler)
        for event in found:
            event.name = event.name.replace("flx:", "gloo:")
        return found

    distributed_test.get_profiling_event = events

    dist.ProcessGroupGloo = dist.distributed_c10d.ProcessGroupGloo = InItsPlace


def suites(sources):
    """unittest's suites, by the name of the file that they are of."""

    def fork_processes(test):
        test._start_processes(torch.multiprocessing.get_context("fork").Process)

    common_distributed.MultiProcessTestCase._spawn_processes = fork_processes
    # What it imports does not work in PyTorch 1.13 with Python 3.11, whatever the backend.
    torch.nn.parallel._replicated_tensor_ddp_utils._set_ddp_with_replicated_tensor = lambda _: None
    folder = pathlib.Path(sources) / "test" / "distributed"
    sys.path.insert(0, str(folder))
    sys.path.insert(0, str(folder.parent))
    os.environ.setdefault("TEMP_DIR", "/tmp")
    names = ["test_c10d_gloo", "test_distributed_spawn"]
    return {name: unittest.defaultTestLoader.loadTestsFromName(name) for name in names}


def each(suite):
    for test in suite:
        if hasattr(test, "__iter__"):
            yield from each(test)
        else:
            yield test


def run_here(test):
    """0: ok, 1: failed, 2: skipped."""
    result = unittest.TextTestRunner(stream=sys.stderr, verbosity=2).run(test)
    if result.skipped:
        return 2
    return 0 if result.wasSuccessful() else 1


def run_apart(test, shows):
    """In a process group of its own, so that nothing of it stays."""
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        if not shows:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 1)
            os.dup2(nowhere, 2)
        try:
            code = run_here(test)
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else 1
        except BaseException as error:  # noqa: BLE001
            print(error, file=sys.stderr)
            code = 1
        os._exit(code)
    ends = time.monotonic() + LIMIT_S
    while time.monotonic() < ends:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        time.sleep(0.01)
    else:
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return f"failed: not within {LIMIT_S} s"
    try:
        os.killpg(child, signal.SIGKILL)
    except ProcessLookupError:
        pass
    return {0: "ok", 2: "skipped"}.get(os.waitstatus_to_exitcode(status), "failed")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", choices=("flx", "gloo"), required=True)
    parser.add_argument("sources")
    parser.add_argument("names", nargs="*")
    given = parser.parse_args()
    if given.backend == "flx":
        put_flx_there()
    counts = {}
    for name, suite in suites(given.sources).items():
        for test in each(suite):
            if given.names and not any(wanted in test.id() for wanted in given.names):
                continue
            began = time.monotonic()
            outcome = run_apart(test, bool(given.names))
            counts[outcome.split(":")[0]] = counts.get(outcome.split(":")[0], 0) + 1
            print(f"{test.id()}\t{outcome}\t{time.monotonic() - began:.1f}", flush=True)
    print(given.backend, counts)


if __name__ == "__main__":
    main()
