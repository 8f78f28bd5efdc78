"""`torch.multiprocessing`: Python's `multiprocessing`. Tensors are copied between processes, not shared."""

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

    Returns:
        None after all have ended; with `join=False`, the list of processes.

    Raises:
        RuntimeError: If one of them fails (the others are then terminated).

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
                    f"process {processes.index(process)} terminated with exit code {process.exitcode}; see its output "
                    "for the reason"
                )
    return None


def spawn(fn, args=(), nprocs: int = 1, join: bool = True, daemon: bool = False, start_method: str = "spawn") -> Any:
    """Runs `fn(i, *args)` in `nprocs` new processes, i = 0, 1, ...; see `start_processes`.

    >>> import tensorgrad as torch
    >>> torch.multiprocessing.spawn(divmod, args=(2,), nprocs=1)
    """
    return start_processes(fn, args, nprocs, join, daemon, start_method)


def get_all_sharing_strategies() -> set[str]:
    """Returns PyTorch's names for ways to share memory between processes; they have no effect here.

    >>> import tensorgrad as torch
    >>> sorted(torch.multiprocessing.get_all_sharing_strategies())
    ['file_descriptor', 'file_system']
    """
    return {"file_descriptor", "file_system"}


def get_sharing_strategy() -> str:
    """Returns the name of PyTorch's default strategy.

    >>> import tensorgrad as torch
    >>> torch.multiprocessing.get_sharing_strategy()
    'file_descriptor'
    """
    return "file_descriptor"


def set_sharing_strategy(new_strategy: str) -> None:
    """Accepted for compatibility.

    Raises:
        AssertionError: If the name is unknown.

    >>> import tensorgrad as torch
    >>> torch.multiprocessing.set_sharing_strategy("file_system")
    """
    if new_strategy not in get_all_sharing_strategies():
        raise AssertionError(f"unknown sharing strategy {new_strategy!r}")
