"""The error of a checkpoint that one of the processes could not write or read."""

from __future__ import annotations

from traceback import StackSummary

__all__ = ["CheckpointException"]


class CheckpointException(BaseException):
    """Saving or loading failed in some processes; all of them get this error.

    Args:
        msg: what was being done.
        failures: for each rank that failed, the error and where it was raised.

    >>> from tensorgrad.distributed.checkpoint import CheckpointException
    >>> print(CheckpointException("write", {1: (OSError("disk full"), None)}))
    write: rank 1: OSError: disk full
    """

    def __init__(self, msg: str, failures: dict[int, tuple[BaseException, StackSummary | None]]) -> None:
        super().__init__(msg, failures)
        self._failures = failures

    @property
    def failures(self) -> dict[int, tuple[BaseException, StackSummary | None]]:
        """For each rank that failed, the error and where it was raised.

        >>> from tensorgrad.distributed.checkpoint import CheckpointException
        >>> list(CheckpointException("write", {1: (OSError("disk full"), None)}).failures)
        [1]
        """
        return self._failures

    def __str__(self) -> str:
        errors = (f"rank {rank}: {type(error).__name__}: {error}" for rank, (error, _) in self._failures.items())
        return " ".join(f"{self.args[0]}: {'; '.join(errors)}".split())  # one line
