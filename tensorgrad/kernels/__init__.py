"""Kernels: how each op runs on plain arrays."""

from tensorgrad.storage.stubs import LOADERS, Storage


def _cuda() -> type[Storage]:
    from tensorgrad.kernels.cuda import loading

    return loading.load()


LOADERS["cuda"] = _cuda
