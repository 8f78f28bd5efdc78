"""The exceptions of `torch.distributed`."""

from __future__ import annotations

__all__ = ["DistBackendError", "DistError", "DistNetworkError", "DistStoreError", "QueueEmptyError"]


class DistError(RuntimeError):
    """Base class of all errors of this package.

    >>> import tensorgrad.distributed as dist
    >>> issubclass(dist.DistStoreError, dist.DistError)
    True
    """


class DistBackendError(DistError):
    """A collective or a transfer failed: it timed out, a peer ended, or MPI reported an error.

    >>> import tensorgrad.distributed as dist
    >>> issubclass(dist.DistBackendError, RuntimeError)
    True
    """


class DistNetworkError(DistError):
    """A connection could not be made, or was closed by the other side.

    >>> import tensorgrad.distributed as dist
    >>> from datetime import timedelta
    >>> try:
    ...     dist.TCPStore("127.0.0.1", 1, timeout=timedelta(milliseconds=10))
    ... except dist.DistNetworkError as error:
    ...     print(error)
    The client socket has timed out after 10ms while trying to connect to (127.0.0.1, 1).
    """


class DistStoreError(DistError):
    """A store did not get a key in time.

    >>> import tensorgrad.distributed as dist
    >>> from datetime import timedelta
    >>> try:
    ...     dist.HashStore().wait(["missing"], timedelta(milliseconds=1))
    ... except dist.DistStoreError as error:
    ...     print(error)
    Wait timeout
    """


class QueueEmptyError(DistStoreError):
    """A queue of a store is empty, and the caller did not want to wait.

    >>> import tensorgrad.distributed as dist
    >>> try:
    ...     dist.HashStore().queue_pop("jobs", False)
    ... except dist.QueueEmptyError as error:
    ...     print(error)
    queue is empty
    """


for _error in (DistError, DistBackendError, DistNetworkError, DistStoreError, QueueEmptyError):
    _error.__module__ = "tensorgrad.distributed"  # as PyTorch names them in tracebacks


def ranks_named(ranks: list[int]) -> str:
    """Ranks in words, for messages.

    >>> from tensorgrad.distributed.errors import ranks_named
    >>> ranks_named([1]), ranks_named([0, 2])
    ('rank 1', 'ranks 0, 2')
    """
    return f"rank{'s' if len(ranks) != 1 else ''} " + ", ".join(map(str, ranks))
