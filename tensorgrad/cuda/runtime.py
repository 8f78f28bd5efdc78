"""The functions of CUDA's runtime that programs call by its own names, through `torch.cuda.cudart()`."""

from __future__ import annotations

from tensorgrad.cuda.devices import cudaStatus, module
from tensorgrad.cuda.memory import mem_get_info

__all__ = ["cudart"]


class _Runtime:
    """The functions. Each returns a result code, or what it asks for."""

    @staticmethod
    def cudaProfilerStart() -> int:
        module().cuda.profiler.start()
        return cudaStatus.SUCCESS

    @staticmethod
    def cudaProfilerStop() -> int:
        module().cuda.profiler.stop()
        return cudaStatus.SUCCESS

    @staticmethod
    def cudaMemGetInfo(device: int) -> tuple[int, int]:
        return mem_get_info(device)


def cudart() -> type[_Runtime]:
    """Returns the functions of CUDA's runtime: here those that start and stop a profiler, and tell the free memory.

    Raises:
        RuntimeError: If there is no GPU.

    >>> if torch.cuda.is_available():
    ...     torch.cuda.check_error(torch.cuda.cudart().cudaProfilerStart())
    """
    module()
    return _Runtime
