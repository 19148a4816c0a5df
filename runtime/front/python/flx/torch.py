"""The backend `flx` of torch.distributed, for tensors in host memory.

    import flx.torch
    torch.distributed.init_process_group("flx")
"""

import datetime

import torch.distributed as dist

from . import _torch


def _create(store, rank, size, timeout):
    return _torch.process_group(store, rank, size, timeout)


def monitored_barrier(group=None, timeout=datetime.timedelta(minutes=30), wait_all_ranks=False):
    """A barrier after which rank 0 raises an exception that names a rank which did not come within `timeout`, or with
    `wait_all_ranks` all of them; the others raise it as well. torch.distributed has one of the same name, which in some
    versions asks for Gloo."""
    group = dist.distributed_c10d._get_default_group() if group is None else group
    group.monitored_barrier(timeout, wait_all_ranks)


if not hasattr(dist.Backend, "FLX"):
    dist.Backend.register_backend("flx", _create)
