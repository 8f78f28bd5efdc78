"""Ranks arranged in a grid, with a process group for every line of it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

import tensorgrad as torch
from tensorgrad.distributed.group import ProcessGroup, default_group, get_process_group_ranks
from tensorgrad.distributed.process_group import get_rank, get_world_size, init_process_group, is_initialized, new_group

__all__ = ["DeviceMesh", "init_device_mesh"]


class DeviceMesh:
    """A grid of ranks. Every dimension has a process group for the line that this process is on.

    All processes of the job must make the mesh.

    Args:
        device_type: "cpu" or "cuda".
        mesh: nested lists, or an integer tensor, of global ranks.
        mesh_dim_names: a name for each dimension.

    Raises:
        RuntimeError: there are more ranks in the mesh than processes, or one appears twice.

    >>> import tensorgrad.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> mesh = dist.DeviceMesh("cpu", [[0]], mesh_dim_names=("dp", "tp"))
    >>> mesh
    DeviceMesh((dp=1, tp=1), 'cpu', stride=((), ()))
    >>> mesh["dp"].get_group().size()
    1
    >>> dist.destroy_process_group()
    """

    def __init__(
        self,
        device_type: str,
        mesh: Any,
        *,
        mesh_dim_names: Sequence[str] | None = None,
        backend_override: Any = None,
        _init_backend: bool = True,
        _groups: list[ProcessGroup] | None = None,
        _root: DeviceMesh | None = None,
    ) -> None:
        self.device_type, self._root = device_type, _root or self
        self._ranks = np.asarray(mesh.tolist() if isinstance(mesh, torch.Tensor) else mesh, np.int32)
        self._names = tuple(mesh_dim_names) if mesh_dim_names else None
        if self._names is not None and len(self._names) != self._ranks.ndim:
            raise RuntimeError(
                f"mesh has {self._ranks.ndim} dimensions but mesh_dim_names has {len(self._names)} names"
            )
        if _groups is None:
            if not is_initialized():
                init_process_group()
            self._check()
            self._choose_gpu()
            _groups = self._make_groups()
        self._groups = _groups
        places = np.argwhere(self._ranks == get_rank())
        self._coordinate = tuple(int(place) for place in places[0]) if len(places) else None

    def _check(self) -> None:
        if self._ranks.size > get_world_size():
            raise RuntimeError(
                f"Mesh should not be bigger than default world size {get_world_size()}, but found {self._ranks.size} "
                "ranks!"
            )
        if len(np.unique(self._ranks)) != self._ranks.size:
            raise RuntimeError(f"DeviceMesh cannot have duplicate values, but found {self._ranks.tolist()}")

    def _choose_gpu(self) -> None:
        """Gives each process of a machine a GPU of its own, unless the program has chosen one."""
        if self.device_type == "cuda" and torch.cuda.is_available() and torch.cuda.current_device() == 0:
            count = torch.cuda.device_count()
            local = int(os.environ.get("LOCAL_RANK", get_rank() % count))
            if local < count:
                torch.cuda.set_device(local)

    def _make_groups(self) -> list[ProcessGroup]:
        """For every dimension, the group of the line that this process is on."""
        result: list[Any] = []
        for dim in range(self._ranks.ndim):
            mine = None
            for line in np.moveaxis(self._ranks, dim, -1).reshape(-1, self._ranks.shape[dim]).tolist():
                whole = line == get_process_group_ranks(None)
                found = default_group() if whole else new_group(line, sort_ranks=False)
                mine = found if get_rank() in line else mine
            result.append(mine)
        return result

    @property
    def mesh(self) -> Any:
        """The ranks, as an integer tensor.

        >>> import tensorgrad.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> dist.init_device_mesh("cpu", (1,)).mesh
        tensor([0], dtype=torch.int32)
        >>> dist.destroy_process_group()
        """
        return torch.from_numpy(self._ranks.copy())

    @property
    def mesh_dim_names(self) -> tuple[str, ...] | None:
        """The dimensions' names.

        >>> import tensorgrad.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> dist.init_device_mesh("cpu", (1,), mesh_dim_names=("dp",)).mesh_dim_names
        ('dp',)
        >>> dist.destroy_process_group()
        """
        return self._names

    @property
    def ndim(self) -> int:
        """The number of dimensions.

        >>> import tensorgrad.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> dist.init_device_mesh("cpu", (1, 1)).ndim
        2
        >>> dist.destroy_process_group()
        """
        return self._ranks.ndim

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the dimensions.

        >>> import tensorgrad.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> dist.init_device_mesh("cpu", (1, 1)).shape
        (1, 1)
        >>> dist.destroy_process_group()
        """
        return self._ranks.shape

    def size(self, mesh_dim: int | None = None) -> int:
        """Returns the number of ranks, or the size of one dimension.

        >>> import tensorgrad.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> dist.init_device_mesh("cpu", (1, 1)).size()
        1
        >>> dist.destroy_process_group()
        """
        return self._ranks.size if mesh_dim is None else self._ranks.shape[mesh_dim]

    def get_rank(self) -> int:
        """Returns this process's global rank.

        >>> import tensorgrad.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> dist.init_device_mesh("cpu", (1,)).get_rank()
        0
        >>> dist.destroy_process_group()
        """
        return get_rank()

    def get_coordinate(self) -> list[int] | tuple[int, ...] | None:
        """Returns this process's place in the grid; None if it is not in it.

        >>> import tensorgrad.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> dist.init_device_mesh("cpu", (1, 1)).get_coordinate()
        (0, 0)
        >>> dist.destroy_process_group()
        """
        return self._coordinate

    def _dim(self, mesh_dim: int | str | None) -> int:
        """The index of a dimension. Raises: KeyError for an unknown name, RuntimeError if it has to be given."""
        if mesh_dim is None:
            if self.ndim > 1:
                raise RuntimeError(
                    f"Found the DeviceMesh have {self.ndim} dimensions",
                    "Optional kwarg `mesh_dim` needs to be specified when device_mesh.ndim > 1.",
                )
            return 0
        if isinstance(mesh_dim, str):
            if self._names is None or mesh_dim not in self._names:
                raise KeyError(
                    f"Mesh dimension '{mesh_dim}' does not exist. Available mesh dimensions are: {self._names}"
                )
            return self._names.index(mesh_dim)
        return mesh_dim

    def get_group(self, mesh_dim: int | str | None = None) -> ProcessGroup:
        """Returns the process group of the line along a dimension that this process is on.

        Args:
            mesh_dim: index or name; may be left out if there is only one dimension.

        >>> import tensorgrad.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> dist.init_device_mesh("cpu", (1, 1)).get_group(0).size()
        1
        >>> dist.destroy_process_group()
        """
        return self._groups[self._dim(mesh_dim)]

    def get_all_groups(self) -> list[ProcessGroup]:
        """Returns the process groups of all dimensions.

        >>> import tensorgrad.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> len(dist.init_device_mesh("cpu", (1, 1)).get_all_groups())
        2
        >>> dist.destroy_process_group()
        """
        return list(self._groups)

    def get_local_rank(self, mesh_dim: int | str | None = None) -> int:
        """Returns this process's rank along a dimension.

        Args:
            mesh_dim: index or name; may be left out if there is only one dimension.

        >>> import tensorgrad.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> dist.init_device_mesh("cpu", (1, 1)).get_local_rank(1)
        0
        >>> dist.destroy_process_group()
        """
        return get_rank(self.get_group(mesh_dim))

    def __getitem__(self, mesh_dim_names: str | tuple[str, ...]) -> DeviceMesh:
        """The part of the grid along some dimensions that this process is on."""
        if self._names is None:
            raise RuntimeError("Cannot slice a DeviceMesh without mesh_dim_names!")
        names = (mesh_dim_names,) if isinstance(mesh_dim_names, str) else tuple(mesh_dim_names)
        dims = [self._dim(name) for name in names]
        place = self._coordinate or (0,) * self.ndim
        index = tuple(slice(None) if dim in dims else place[dim] for dim in range(self.ndim))
        kept = [dim for dim in range(self.ndim) if dim in dims]
        part = self._ranks[index].transpose([kept.index(dim) for dim in dims])
        groups = [self._groups[dim] for dim in dims]
        return DeviceMesh(self.device_type, part, mesh_dim_names=names, _groups=groups, _root=self._root)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DeviceMesh):
            return NotImplemented
        return self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[Any, ...]:
        return self.device_type, self._names, self._ranks.shape, tuple(self._ranks.reshape(-1).tolist())

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name}={size}" for name, size in zip(self._names or (), self.shape))
        strides = [int(np.prod(self.shape[dim + 1 :])) if size > 1 else () for dim, size in enumerate(self.shape)]
        text = (
            f"DeviceMesh({f'({sizes})' if self._names else self.shape}, '{self.device_type}', stride={tuple(strides)}"
        )
        if os.environ.get("TORCH_DISTRIBUTED_DEBUG", "") == "DETAIL":
            text += f", Mesh: {self._ranks.tolist()}"
        return text + ")"


def init_device_mesh(
    device_type: str,
    mesh_shape: Sequence[int],
    *,
    mesh_dim_names: Sequence[str] | None = None,
    backend_override: Any = None,
) -> DeviceMesh:
    """Arranges the ranks 0, 1, ... in a grid, row by row. All processes of the job must call it.

    Makes the default process group if there is none.

    Args:
        device_type: "cpu" or "cuda", without an index.
        mesh_shape: the sizes of the dimensions.
        mesh_dim_names: a name for each.
        backend_override: accepted; changes nothing.

    Raises:
        RuntimeError: names are given twice or do not fit, or there are not enough processes.

    >>> import tensorgrad.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> dist.init_device_mesh("cpu", (1, 1), mesh_dim_names=("dp", "tp"))
    DeviceMesh((dp=1, tp=1), 'cpu', stride=((), ()))
    >>> dist.destroy_process_group()
    """
    if mesh_dim_names is not None:
        if len(set(mesh_dim_names)) != len(mesh_dim_names):
            raise RuntimeError(
                "Each mesh_dim_name must be unique.", f"Found repeated mesh_dim_name in mesh_dim_names {mesh_dim_names}"
            )
        if len(mesh_shape) != len(mesh_dim_names):
            raise RuntimeError(
                "mesh_shape and mesh_dim_names should have same length!",
                f"Found len(mesh_dim_names): {len(mesh_dim_names)} and len(mesh_shape):{len(mesh_shape)}.",
            )
    if device_type and not device_type.isalpha():
        raise RuntimeError(
            f"Device type with index is not supported but got {device_type}. ",
            "If you maintained a 'torch.device' object, it's recommended to pass in 'device.type'.",
        )
    ranks = np.arange(int(np.prod(mesh_shape))).reshape(tuple(mesh_shape))
    return DeviceMesh(device_type, ranks, mesh_dim_names=mesh_dim_names)
