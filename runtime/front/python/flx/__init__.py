"""FLX's collectives in Python, over arrays of numpy, tensors of PyTorch, and whatever has the buffer protocol or DLPack.

Ranks are those of an MPI communicator (Communicator.from_mpi, with mpi4py) or processes that a launcher told
MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE (Communicator.from_store). Collectives block and let other threads run;
those that begin with `i` return a Request, for which a coroutine can await. Errors are flx.Error.
"""

import asyncio

from ._flx import (
    AVG,
    BAND,
    BF16,
    BOR,
    BXOR,
    COMPLEX_F32,
    COMPLEX_F64,
    F8E4M3,
    F8E5M2,
    F16,
    F32,
    F32_INT32,
    F64,
    F64_INT32,
    INT8,
    INT16,
    INT32,
    INT32_INT32,
    INT64,
    LAND,
    LOR,
    LXOR,
    MAX,
    MAXLOC,
    MIN,
    MINLOC,
    PROD,
    SUM,
    UINT8,
    UINT16,
    UINT32,
    UINT64,
    Communicator,
    Error,
    Memory,
    Request,
    Status,
    version,
)

__version__ = version()
__all__ = [name for name in dir() if name[0] != "_" and name != "asyncio"]

_TURNS = 100
_NAP_S = 0.0002


def _await(self):
    """Other coroutines run until the operation has completed; when it takes long, the event loop naps in between."""
    turns = 0
    while not self.test():
        turns += 1
        yield from asyncio.sleep(0 if turns < _TURNS else _NAP_S).__await__()


Request.__await__ = _await


def _enter(self):
    return self


def _leave(self, kind, error, _):
    """Other ranks may wait for this one, which an exception took away: they are told. To exit with code 0 is none."""
    if error is not None and not (isinstance(error, SystemExit) and error.code in (None, 0)):
        try:
            self.abort(f"{kind.__name__}: {error}")
        except Error:
            pass  # freed, or of the parent of this process
    self.free()


Communicator.__enter__ = _enter
Communicator.__exit__ = _leave
