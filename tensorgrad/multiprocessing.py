"""`torch.multiprocessing`: Python's `multiprocessing`. Tensors go from process to process as copies, not shared."""

from __future__ import annotations

import multiprocessing as _multiprocessing
from multiprocessing import *  # noqa: F403
from typing import Any

__all__ = [
    *_multiprocessing.__all__, "get_all_sharing_strategies", "get_sharing_strategy", "set_sharing_strategy", "spawn",
    "start_processes",
]  # fmt: skip


def _run(function, rank: int, args: tuple) -> None:
    function(rank, *args)


def start_processes(fn, args=(), nprocs: int = 1, join: bool = True, daemon: bool = False, start_method="spawn") -> Any:
    """Runs `fn(i, *args)` in `nprocs` processes, i = 0, 1, ...

    Returns: None after all have ended; without `join` the list of the processes.

    Raises: RuntimeError if one of them ended with an error (the others are then stopped).

    >>> import tensorgrad as torch
    >>> processes = torch.multiprocessing.start_processes(abs, nprocs=1, join=False)
    >>> processes[0].join()
    >>> processes[0].exitcode
    0
    """
    context = _multiprocessing.get_context(start_method)
    processes = [context.Process(target=_run, args=(fn, rank, args), daemon=daemon) for rank in range(nprocs)]
    for process in processes:
        process.start()
    if not join:
        return processes
    import multiprocessing.connection

    waiting = {process.sentinel: process for process in processes}
    while waiting:
        for ended in multiprocessing.connection.wait(list(waiting)):
            process = waiting.pop(ended)
            process.join()
            if process.exitcode:
                for other in waiting.values():
                    other.terminate()
                raise RuntimeError(
                    f"process {processes.index(process)} terminated with exit code {process.exitcode}; its own output "
                    "says why"
                )
    return None


def spawn(fn, args=(), nprocs: int = 1, join: bool = True, daemon: bool = False, start_method: str = "spawn") -> Any:
    """Runs `fn(i, *args)` in `nprocs` fresh processes, i = 0, 1, ...; see `start_processes`.

    >>> import tensorgrad as torch
    >>> torch.multiprocessing.spawn(divmod, args=(2,), nprocs=1)
    """
    return start_processes(fn, args, nprocs, join, daemon, start_method)


def get_all_sharing_strategies() -> set[str]:
    """How memory can be shared between processes: PyTorch's names, which change nothing here.

    >>> import tensorgrad as torch
    >>> sorted(torch.multiprocessing.get_all_sharing_strategies())
    ['file_descriptor', 'file_system']
    """
    return {"file_descriptor", "file_system"}


def get_sharing_strategy() -> str:
    """PyTorch's default name.

    >>> import tensorgrad as torch
    >>> torch.multiprocessing.get_sharing_strategy()
    'file_descriptor'
    """
    return "file_descriptor"


def set_sharing_strategy(new_strategy: str) -> None:
    """Accepted. Raises: AssertionError for an unknown name.

    >>> import tensorgrad as torch
    >>> torch.multiprocessing.set_sharing_strategy("file_system")
    """
    if new_strategy not in get_all_sharing_strategies():
        raise AssertionError(f"unknown sharing strategy {new_strategy!r}")
