"""TORCH_DISTRIBUTED_DEBUG=DETAIL: before a collective begins, all ranks compare what they are about to do."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from tensorgrad.distributed.group import ProcessGroup
from tensorgrad.distributed.work import Work

__all__ = ["check", "description"]

LENGTH = 1024  # bytes that each rank sends


def description(name: str, number: int, alike: Sequence[Any]) -> str:
    """What a rank is about to do. `alike` are tensors and words that must be the same on all ranks.

    >>> from tensorgrad.distributed.collectives.agreement import description
    >>> description("broadcast", 3, [torch.ones(2, 3), "from rank 0"])
    'broadcast (number 3) of float32 (2, 3), from rank 0'
    """
    parts = [x if isinstance(x, str) else f"{str(x.dtype).split('.')[-1]} {tuple(x.shape)}" for x in alike]
    return f"{name} (number {number})" + (f" of {', '.join(parts)}" if parts else "")


def check(group: ProcessGroup, text: str) -> None:
    """Waits for all members. Raises: RuntimeError, on all of them, if they are not about to do the same."""
    data = text.encode()
    if len(data) > LENGTH:
        data = data[: LENGTH - 70] + b"... " + hashlib.sha256(data).hexdigest().encode()
    given = np.zeros(LENGTH, np.uint8)
    given[: len(data)] = np.frombuffer(data, np.uint8)
    received = np.empty((group.size(), LENGTH), np.uint8)
    requests = [group.communicator.all_gather(given, received.reshape(-1))]
    Work(group, text, requests, lambda: None, [], received.nbytes, group.sequence).wait()
    ranks: dict[str, list[int]] = {}
    for rank, row in zip(group.ranks, received):
        ranks.setdefault(row.tobytes().rstrip(b"\0").decode(errors="replace"), []).append(rank)
    if len(ranks) > 1:
        each = "; ".join(
            f"{'rank' if len(who) == 1 else 'ranks'} {', '.join(map(str, who))}: {what}" for what, who in ranks.items()
        )
        raise RuntimeError(
            f"[Rank {group.ranks[group.rank()]}] Detected mismatch between collectives on ranks. They are about to "
            f"call: {each}"
        )
