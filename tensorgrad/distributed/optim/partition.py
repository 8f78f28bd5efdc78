"""Which process updates which parameters."""

from __future__ import annotations

from typing import Any

__all__ = ["partition"]


def partition(param_groups: list[dict[str, Any]], count: int) -> list[list[dict[str, Any]]]:
    """Divides parameters among processes, so that all have about the same number of elements.

    In every group the parameters are taken by size, the largest first, and each goes to the process that has the least
    so far. A group that is added later does not change where the parameters of earlier groups are.

    Args:
        param_groups: the groups of an optimizer.
        count: the number of processes.

    Returns:
        For every process the groups in the same order, with its own parameters and all settings.
    """
    sizes = [0] * count
    result: list[list[dict[str, Any]]] = [[] for _ in range(count)]
    for group in param_groups:
        parts: list[list[Any]] = [[] for _ in range(count)]
        for param in sorted(group["params"], key=lambda p: p.numel(), reverse=True):
            rank = sizes.index(min(sizes))
            parts[rank].append(param)
            sizes[rank] += param.numel()
        for rank, params in enumerate(parts):
            result[rank].append({**group, "params": params})
    return result
