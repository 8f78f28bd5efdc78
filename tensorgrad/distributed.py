"""`torch.distributed`: tensorgrad runs in a single process and reports distributed training as unavailable."""

from __future__ import annotations

from typing import Any


def is_available() -> bool:
    """Returns whether distributed training is available: always False.

    >>> import tensorgrad as torch
    >>> torch.distributed.is_available()
    False
    """
    return False


def is_initialized() -> bool:
    """Returns whether a process group is initialized: always False.

    >>> import tensorgrad as torch
    >>> rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
    """
    return False


def is_nccl_available() -> bool:
    """Returns whether NCCL is available: always False.

    >>> import tensorgrad as torch
    >>> torch.distributed.is_nccl_available()
    False
    """
    return False


is_mpi_available = is_gloo_available = is_torchelastic_launched = is_nccl_available


def _refuse(name: str) -> Any:
    def function(*args: Any, **options: Any) -> Any:
        raise RuntimeError(
            f"distributed.{name}: training in several processes is not included (is_available() is False)"
        )

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""Not supported: training in several processes is not included.

    Raises:
        RuntimeError: Always.

    >>> import tensorgrad as torch
    >>> torch.distributed.{name}()
    Traceback (most recent call last):
        ...
    RuntimeError: distributed.{name}: training in several processes is not included (is_available() is False)
    """
    return function


init_process_group = _refuse("init_process_group")
destroy_process_group = _refuse("destroy_process_group")
get_rank = _refuse("get_rank")
get_world_size = _refuse("get_world_size")
barrier = _refuse("barrier")
all_reduce = _refuse("all_reduce")
all_gather = _refuse("all_gather")
broadcast = _refuse("broadcast")
