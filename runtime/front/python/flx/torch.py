"""The backend `flx` of torch.distributed, for tensors in host memory.

    import flx.torch
    torch.distributed.init_process_group("flx")
"""

import datetime

import torch.distributed as dist
from flx_torch_backend import create as _create  # noqa: F401
from flx_torch_backend import register as _register

from . import _torch  # noqa: F401: what is missing is said at once


def monitored_barrier(group=None, timeout=datetime.timedelta(minutes=30), wait_all_ranks=False):
    """A barrier after which rank 0 raises an exception that names a rank which did not come within `timeout`, or with
    `wait_all_ranks` all of them; the others raise it as well. torch.distributed has one of the same name, which in some
    versions asks for Gloo."""
    group = dist.distributed_c10d._get_default_group() if group is None else group
    group.monitored_barrier(timeout, wait_all_ranks)


_register()
