"""How rows are divided among threads that keep them in registers (sources/register_rows.cuh)."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

PACKS = 4  # per thread, as in register_rows.cuh
WARPS = 4  # rows per block if a warp takes one row
MOST_BLOCKS = 2**31 - 1


class Plan(NamedTuple):
    """A launch over rows: elements per pack, whether a warp takes a row, threads and rows per block."""

    pack: int
    warp: bool
    threads: int
    groups: int

    @property
    def settings(self) -> dict:
        """Returns the program's #defines."""
        return {"COUNT": self.pack, **({"WARP": 1} if self.warp else {})}

    def blocks(self, rows: int) -> int:
        """Returns the number of blocks, with one row per group of threads."""
        return min(-(-rows // self.groups), MOST_BLOCKS)


def plan(n: int, arrays) -> Plan | None:
    """Plans the launch for rows of n elements of the first array's size; None if they are too long for registers."""
    pack = 16 // arrays[0].dtype.itemsize
    for a in arrays:
        if a.data.ptr % (pack * a.dtype.itemsize):
            pack = 1
            break
    return _divided(n, pack)


@lru_cache(maxsize=4096)
def _divided(n: int, pack: int) -> Plan | None:
    pack = 1 if n % pack else pack
    packs = n // pack
    if packs > 1024 * PACKS:
        return None
    if packs <= 32 * PACKS:
        return Plan(pack, True, 32 * WARPS, WARPS)
    return Plan(pack, False, -(-packs // (32 * PACKS)) * 32, 1)
