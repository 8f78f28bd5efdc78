"""How a tensor is distributed: the mesh, a placement per dimension of the mesh, and the shape of the whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tensorgrad.distributed.device_mesh import DeviceMesh
from tensorgrad.distributed.tensor.placement_types import Placement, Shard, _StridedShard, chunk_sizes
from tensorgrad.size import Size

__all__ = ["DTensorSpec", "length_before", "order_of_splits"]


class DTensorSpec(NamedTuple):
    """The layout of a `DTensor`.

    >>> import tensorgrad.distributed as dist
    >>> from tensorgrad.distributed.tensor import Shard
    >>> from tensorgrad.distributed.tensor._dtensor_spec import DTensorSpec
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> DTensorSpec(dist.init_device_mesh("cpu", (1,)), (Shard(0),), (4, 2)).local_shape()
    (4, 2)
    >>> dist.destroy_process_group()
    """

    mesh: DeviceMesh
    placements: tuple[Placement, ...]
    shape: Sequence[int]

    @property
    def device_mesh(self) -> DeviceMesh:
        """The mesh."""
        return self.mesh

    @property
    def ndim(self) -> int:
        """The number of dimensions of the whole."""
        return len(self.shape)

    def local_shape(self) -> tuple[int, ...]:
        """Returns the shape of this rank's piece."""
        return self.local_shape_and_offset()[0]

    def local_shape_and_offset(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Returns the shape of this rank's piece, and where it starts in the whole; zeros if it is not in the mesh."""
        place = self.mesh.get_coordinate()
        sizes, offsets = list(self.shape), [0] * len(self.shape)
        if place is None:
            return tuple(0 for _ in sizes), tuple(offsets)
        for mesh_dim in order_of_splits(self.placements):
            placement = self.placements[mesh_dim]
            assert isinstance(placement, Shard)
            pieces = chunk_sizes(sizes[placement.dim], self.mesh.size(mesh_dim))
            offsets[placement.dim] += sum(pieces[: place[mesh_dim]])
            sizes[placement.dim] = pieces[place[mesh_dim]]
        return tuple(sizes), tuple(offsets)

    def with_placements(self, placements: Sequence[Placement]) -> DTensorSpec:
        """Returns the same with other placements."""
        return self._replace(placements=tuple(placements))


def order_of_splits(placements: Sequence[Placement]) -> list[int]:
    """The dimensions of the mesh that divide the tensor, in the order in which they divide it."""
    plain = [i for i, placement in enumerate(placements) if type(placement) is Shard]
    return plain + [i for i, placement in enumerate(placements) if isinstance(placement, _StridedShard)]


def length_before(spec: DTensorSpec, mesh_dim: int, dim: int) -> int:
    """The length of the dimension `dim` on this rank before `mesh_dim` divides it."""
    place = spec.mesh.get_coordinate() or (0,) * spec.mesh.ndim
    order, length = order_of_splits(spec.placements), spec.shape[dim]
    for earlier in order[: order.index(mesh_dim)] if mesh_dim in order else order:
        if spec.placements[earlier].is_shard(dim):
            length = chunk_sizes(length, spec.mesh.size(earlier))[place[earlier]]
    return length


def size_of(shape: Sequence[int]) -> Size:
    """A shape as `torch.Size`."""
    return Size(shape)
