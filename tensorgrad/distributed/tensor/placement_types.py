"""How a tensor lies along one dimension of a device mesh: in pieces, as copies, or as terms of a sum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Partial", "Placement", "Replicate", "Shard", "chunk_sizes"]


def chunk_sizes(length: int, chunks: int) -> list[int]:
    """The lengths of the pieces into which `torch.chunk` divides a dimension, with zeros for those that are missing.

    >>> from tensorgrad.distributed.tensor.placement_types import chunk_sizes
    >>> chunk_sizes(10, 4), chunk_sizes(2, 4)
    ([3, 3, 3, 1], [1, 1, 0, 0])
    """
    piece = -(-length // chunks)
    return [max(0, min(length, (i + 1) * piece) - i * piece) for i in range(chunks)]


class Placement:
    """Base class of `Shard`, `Replicate` and `Partial`."""

    def is_shard(self, dim: int | None = None) -> bool:
        """Returns whether this is a `Shard`, of the dimension `dim` if one is given.

        >>> from tensorgrad.distributed.tensor import Shard
        >>> Shard(0).is_shard(), Shard(0).is_shard(1)
        (True, False)
        """
        return isinstance(self, Shard) and (dim is None or self.dim == dim)

    def is_replicate(self) -> bool:
        """Returns whether this is `Replicate`.

        >>> from tensorgrad.distributed.tensor import Replicate
        >>> Replicate().is_replicate()
        True
        """
        return isinstance(self, Replicate)

    def is_partial(self, reduce_op: str | None = None) -> bool:
        """Returns whether this is `Partial`, with the operation `reduce_op` if one is given.

        >>> from tensorgrad.distributed.tensor import Partial
        >>> Partial().is_partial(), Partial("max").is_partial("sum")
        (True, False)
        """
        return isinstance(self, Partial) and (reduce_op is None or self.reduce_op == reduce_op)


@dataclass(frozen=True)
class Shard(Placement):
    """Each rank has one piece of the dimension `dim`, in the order of ranks; pieces are those of `torch.chunk`.

    >>> from tensorgrad.distributed.tensor import Shard
    >>> Shard(1)
    Shard(dim=1)
    """

    dim: int

    def local_shard_size_and_offset(self, curr_local_size: int, num_chunks: int, rank: int) -> tuple[int, int]:
        """Returns the length of a rank's piece, and where it starts.

        Args:
            curr_local_size: the length that is divided.
            num_chunks: among how many ranks.
            rank: whose piece.

        >>> from tensorgrad.distributed.tensor import Shard
        >>> Shard(0).local_shard_size_and_offset(10, 4, 3)
        (1, 9)
        """
        sizes = chunk_sizes(curr_local_size, num_chunks)
        return sizes[rank], sum(sizes[:rank])

    def __str__(self) -> str:
        return f"S({self.dim})"


@dataclass(frozen=True)
class _StridedShard(Shard):
    """A `Shard` of pieces that another dimension of the mesh made first, although it comes later in the mesh.

    `fully_shard` makes it of the weights of a tensor-parallel layer.
    """

    split_factor: int = 1

    def __repr__(self) -> str:
        return f"_StridedShard(dim={self.dim}, sf={self.split_factor})"

    def __str__(self) -> str:
        return f"_S({self.dim}, {self.split_factor})"


@dataclass(frozen=True)
class Replicate(Placement):
    """Each rank has a copy of the whole.

    >>> from tensorgrad.distributed.tensor import Replicate
    >>> Replicate()
    Replicate()
    """

    def __str__(self) -> str:
        return "R"


@dataclass(frozen=True)
class Partial(Placement):
    """Each rank has a tensor of the whole shape; the value is what `reduce_op` makes of them.

    Args:
        reduce_op: "sum", "avg", "product", "max" or "min".

    >>> from tensorgrad.distributed.tensor import Partial
    >>> Partial()
    Partial(sum)
    """

    reduce_op: str = "sum"

    def __repr__(self) -> str:
        return f"Partial({self.reduce_op})"

    def __str__(self) -> str:
        return f"P({self.reduce_op})"


def text_of(placements: Sequence[Placement]) -> str:
    """Placements as messages show them: `(S(0), R)`."""
    return "(" + ", ".join(map(str, placements)) + ("," if len(placements) == 1 else "") + ")"
