"""The communicator of a group of one process: everything is a copy, and MPI is not needed."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["Done", "SingleCommunicator"]


class Done:
    """A request that is complete."""

    def completed(self) -> bool:
        return True


class SingleCommunicator:
    """One process: see `MPICommunicator`, which has the same methods."""

    rank, size = 0, 1

    def all_reduce(self, array: np.ndarray, op: str) -> Done:
        return Done()

    def reduce(self, array: np.ndarray, op: str, root: int) -> Done:
        return Done()

    def reduce_scatter(self, given: np.ndarray, received: np.ndarray, counts: list[int], op: str) -> Done:
        received[...] = given
        return Done()

    def broadcast(self, array: np.ndarray, root: int) -> Done:
        return Done()

    def all_gather(self, given: np.ndarray, received: np.ndarray) -> Done:
        received[...] = given
        return Done()

    def gather(self, given: np.ndarray, received: np.ndarray | None, root: int) -> Done:
        if received is not None:
            received[...] = given
        return Done()

    def scatter(self, given: np.ndarray | None, received: np.ndarray, root: int) -> Done:
        if given is not None:
            received[...] = given
        return Done()

    def all_to_all(
        self, given: np.ndarray, given_counts: list[int], received: np.ndarray, received_counts: list[int]
    ) -> Done:
        received[...] = given
        return Done()

    def send(self, array: np.ndarray, rank: int, tag: int) -> Any:
        raise ValueError("a group of one process has no other to send to")

    def receive(self, array: np.ndarray, rank: int | None, tag: int) -> Any:
        raise ValueError("a group of one process has no other to receive from")

    def barrier(self) -> Done:
        return Done()

    def missing(self) -> list[int]:
        return []

    def free(self) -> None:
        pass
