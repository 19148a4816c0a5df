"""Makes the backend `flx` known to torch.distributed. PyTorch since version 2.5 calls register() when it is imported
(dist-info/entry_points.txt), so that programs need not import flx.torch."""


def register():
    import torch.distributed as dist
    if not dist.is_available() or hasattr(dist.Backend, "FLX"):
        return
    of_devices = {"devices": ["cpu"]} if hasattr(dist.Backend, "backend_capability") else {}  # since version 2
    dist.Backend.register_backend("flx", create, **of_devices)


def create(store, rank, size, timeout):
    from flx import _torch  # only programs that use it load the library
    return _torch.process_group(store, rank, size, timeout)
