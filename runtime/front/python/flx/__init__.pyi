"""Types of the package flx. Shapes, in-place rules and errors are those of the functions of flx.h of the same names."""

from collections.abc import Generator, Sequence
from enum import IntEnum
from typing import Any

from typing_extensions import Self

Buffer = Any
"""Dense memory: an object with the buffer protocol, or with DLPack's `__dlpack__`."""

class Status(IntEnum):
    SUCCESS = 0
    ARGUMENT = 1
    CONFIG = 2
    UNSUPPORTED = 3
    MISMATCH = 4
    LINK = 5
    PEER = 6
    COMM = 7
    SYSTEM = 8

class Error(RuntimeError):
    """What FLX says that is wrong. Its text is FLX's sentence."""

    status: Status
    code: str
    """`FLX-E601`; docs/errors.md says more of each. Empty where this package itself refuses an argument."""

class Memory:
    """Memory that ranks of one host move faster: flx_malloc. numpy.frombuffer(memory, dtype) makes an array of it."""

    def __init__(self, bytes: int) -> None: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

class Request:
    """A collective under way. It keeps the memory that it reads and writes, which is not to be touched meanwhile. When
    it is dropped before it has completed, its communicator keeps both, and goes on with it in later calls."""

    def wait(self) -> None: ...
    def test(self) -> bool: ...
    def __await__(self) -> Generator[Any, None, None]: ...

class Communicator:
    """A group of ranks. It frees itself, with all ranks, when nobody has it any more, or at the end of a `with`, which
    aborts it first if an exception leaves it.

    `dtype` is one of this module's types of elements, where an object's own is not what is meant."""

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @staticmethod
    def from_mpi(mpi_comm: Any, **settings: Any) -> Communicator:
        """Of the ranks of mpi4py's communicator. Settings: partition, links, algorithm, deadline_s, check, strict."""
    @staticmethod
    def from_store(
        address: str | None = ..., port: int = ..., rank: int = ..., size: int = ..., **settings: Any
    ) -> Communicator:
        """Of processes without MPI. What is not given, MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE say."""
    def dup(self) -> Communicator: ...
    def split(self, color: int, key: int = ...) -> Communicator | None: ...
    def free(self) -> None: ...
    def abort(self, reason: str = ...) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *exception: object) -> None: ...
    def barrier(self) -> None: ...
    def ibarrier(self) -> Request: ...
    def allreduce(self, send: Buffer, recv: Buffer | None = ..., op: int = ..., *, dtype: int = ...) -> None: ...
    def iallreduce(self, send: Buffer, recv: Buffer | None = ..., op: int = ..., *, dtype: int = ...) -> Request: ...
    def scan(self, send: Buffer, recv: Buffer | None = ..., op: int = ..., *, dtype: int = ...) -> None: ...
    def iscan(self, send: Buffer, recv: Buffer | None = ..., op: int = ..., *, dtype: int = ...) -> Request: ...
    def exscan(self, send: Buffer, recv: Buffer | None = ..., op: int = ..., *, dtype: int = ...) -> None: ...
    def iexscan(self, send: Buffer, recv: Buffer | None = ..., op: int = ..., *, dtype: int = ...) -> Request: ...
    def reduce(
        self, send: Buffer | None, recv: Buffer | None = ..., op: int = ..., root: int = ..., *, dtype: int = ...
    ) -> None: ...
    def ireduce(
        self, send: Buffer | None, recv: Buffer | None = ..., op: int = ..., root: int = ..., *, dtype: int = ...
    ) -> Request: ...
    def reduce_scatter_block(
        self, send: Buffer, recv: Buffer | None = ..., op: int = ..., *, dtype: int = ...
    ) -> None: ...
    def ireduce_scatter_block(
        self, send: Buffer, recv: Buffer | None = ..., op: int = ..., *, dtype: int = ...
    ) -> Request: ...
    def reduce_scatter(
        self, send: Buffer, recv: Buffer | None, recvcounts: Sequence[int], op: int = ..., *, dtype: int = ...
    ) -> None: ...
    def ireduce_scatter(
        self, send: Buffer, recv: Buffer | None, recvcounts: Sequence[int], op: int = ..., *, dtype: int = ...
    ) -> Request: ...
    def bcast(self, buffer: Buffer, root: int = ..., *, dtype: int = ...) -> None: ...
    def ibcast(self, buffer: Buffer, root: int = ..., *, dtype: int = ...) -> Request: ...
    def allgather(self, send: Buffer | None, recv: Buffer, *, dtype: int = ...) -> None: ...
    def iallgather(self, send: Buffer | None, recv: Buffer, *, dtype: int = ...) -> Request: ...
    def allgatherv(
        self,
        send: Buffer | None,
        recv: Buffer,
        recvcounts: Sequence[int],
        displs: Sequence[int] | None = ...,
        *,
        dtype: int = ...,
    ) -> None: ...
    def iallgatherv(
        self,
        send: Buffer | None,
        recv: Buffer,
        recvcounts: Sequence[int],
        displs: Sequence[int] | None = ...,
        *,
        dtype: int = ...,
    ) -> Request: ...
    def gather(
        self, send: Buffer | None, recv: Buffer | None = ..., root: int = ..., *, dtype: int = ...
    ) -> None: ...
    def igather(
        self, send: Buffer | None, recv: Buffer | None = ..., root: int = ..., *, dtype: int = ...
    ) -> Request: ...
    def gatherv(
        self,
        send: Buffer | None,
        recv: Buffer | None = ...,
        recvcounts: Sequence[int] | None = ...,
        displs: Sequence[int] | None = ...,
        root: int = ...,
        *,
        dtype: int = ...,
    ) -> None: ...
    def igatherv(
        self,
        send: Buffer | None,
        recv: Buffer | None = ...,
        recvcounts: Sequence[int] | None = ...,
        displs: Sequence[int] | None = ...,
        root: int = ...,
        *,
        dtype: int = ...,
    ) -> Request: ...
    def scatter(self, send: Buffer | None, recv: Buffer | None, root: int = ..., *, dtype: int = ...) -> None: ...
    def iscatter(self, send: Buffer | None, recv: Buffer | None, root: int = ..., *, dtype: int = ...) -> Request: ...
    def scatterv(
        self,
        send: Buffer | None,
        sendcounts: Sequence[int] | None,
        recv: Buffer | None,
        displs: Sequence[int] | None = ...,
        root: int = ...,
        *,
        dtype: int = ...,
    ) -> None: ...
    def iscatterv(
        self,
        send: Buffer | None,
        sendcounts: Sequence[int] | None,
        recv: Buffer | None,
        displs: Sequence[int] | None = ...,
        root: int = ...,
        *,
        dtype: int = ...,
    ) -> Request: ...
    def alltoall(self, send: Buffer, recv: Buffer | None = ..., *, dtype: int = ...) -> None: ...
    def ialltoall(self, send: Buffer, recv: Buffer | None = ..., *, dtype: int = ...) -> Request: ...
    def alltoallv(
        self,
        send: Buffer,
        sendcounts: Sequence[int],
        recv: Buffer,
        recvcounts: Sequence[int],
        sdispls: Sequence[int] | None = ...,
        rdispls: Sequence[int] | None = ...,
        *,
        dtype: int = ...,
    ) -> None: ...
    def ialltoallv(
        self,
        send: Buffer,
        sendcounts: Sequence[int],
        recv: Buffer,
        recvcounts: Sequence[int],
        sdispls: Sequence[int] | None = ...,
        rdispls: Sequence[int] | None = ...,
        *,
        dtype: int = ...,
    ) -> Request: ...

def version() -> str: ...

__version__: str
INT8: int
UINT8: int
INT16: int
UINT16: int
INT32: int
UINT32: int
INT64: int
UINT64: int
F16: int
BF16: int
F32: int
F64: int
COMPLEX_F32: int
COMPLEX_F64: int
F8E4M3: int
F8E5M2: int
F32_INT32: int
F64_INT32: int
INT32_INT32: int
SUM: int
PROD: int
MIN: int
MAX: int
AVG: int
LAND: int
LOR: int
LXOR: int
BAND: int
BOR: int
BXOR: int
MINLOC: int
MAXLOC: int
