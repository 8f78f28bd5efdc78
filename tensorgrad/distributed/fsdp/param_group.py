"""The parameters of one module under `fully_shard`: divided at rest, gathered for as long as they are needed.

All parameters travel in one message: every rank's pieces, padded to equal length, lie behind each other in one buffer.

The graph saves gathered parameters, which would keep them in memory until the backward pass. Therefore what it saves of
them is packed as "so and so many elements of that parameter" (`pack`), and they are gathered again when backward asks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import tensorgrad as torch
from tensorgrad.autograd.variable import Variable
from tensorgrad.distributed import collectives
from tensorgrad.distributed.device_mesh import DeviceMesh
from tensorgrad.distributed.fsdp.policies import MixedPrecisionPolicy
from tensorgrad.distributed.reduce_op import ReduceOp
from tensorgrad.distributed.tensor._dtensor_spec import DTensorSpec
from tensorgrad.distributed.tensor.dtensor import DTensor, as_dtensor
from tensorgrad.distributed.tensor.placement_types import Replicate, Shard, _StridedShard
from tensorgrad.nn.parameter import Parameter
from tensorgrad.storage.stubs import STORAGES
from tensorgrad.tensor import share

__all__ = ["ParamGroup", "divided_over"]


class Sharded:
    """One parameter: its piece (`sharded`, a `DTensor`) and the whole (`whole`, empty between uses).

    The whole of a tensor-parallel layer's parameter is what this rank has of it without `fully_shard`, placed by
    `layout`; shapes are those of that.
    """

    def __init__(self, parameter: Any, mesh: Any, dtype: Any, device: Any) -> None:
        group = mesh.get_group(mesh.ndim - 1)
        self.layout: DTensorSpec | None = parameter._spec if isinstance(parameter, DTensor) else None
        local = parameter.detach() if self.layout is None else parameter._local_tensor
        self.shape, self.dtype = tuple(local.shape), dtype or parameter.dtype
        if not self.shape:
            raise ValueError(
                "fully_shard doesn't support scalar parameters. Change it to a 1D tensor with numel equal to 1."
            )
        self.rows = -(-self.shape[0] // group.size())
        self.row = int(np.prod(self.shape[1:]))
        first = min(group.rank() * self.rows, self.shape[0])
        piece = local[first : first + self.rows]
        piece = piece.clone() if local.is_meta else piece.to(device, copy=True)
        spec = DTensorSpec(mesh, (*[Replicate()] * (mesh.ndim - 1), Shard(0)), self.shape)
        if self.layout is not None:
            spec = divided_again(self.layout, mesh)
        self.sharded: Any = as_dtensor(piece, spec)._as_parameter(parameter.requires_grad)
        self.places: list[tuple[Any, str]] = []  # (module, name) of every module that has it
        self.whole: Any = None
        self.reduced: Any = None  # the gradient's piece, before it is averaged over replicas

    def make_whole(self, local: Any) -> Any:
        """The parameter that modules have while they run."""
        if self.layout is None:
            return Parameter(local, self.sharded.requires_grad)
        return as_dtensor(local, self.layout)._as_parameter(self.sharded.requires_grad)

    def renew(self) -> None:
        """Takes what has replaced the piece in the modules: by `to_empty`, or `load_state_dict(assign=True)`."""
        module, name = self.places[0]
        if module._parameters[name] is not self.sharded:
            self.sharded = module._parameters[name]
            self.show(self.sharded)

    @property
    def local(self) -> Any:
        """The values of the piece."""
        return self.sharded._local_tensor

    @property
    def requires_grad(self) -> bool:
        """Whether gradients are wanted."""
        return self.sharded.requires_grad

    @property
    def has_gradient(self) -> bool:
        """Whether a gradient of the whole has arrived."""
        return self.whole is not None and self.whole._grad is not None

    @property
    def padded(self) -> int:
        """The number of elements of a piece, with padding."""
        return self.rows * self.row

    def show(self, parameter: Any) -> None:
        """Makes this the parameter that modules have."""
        for module, name in self.places:
            module._parameters[name] = parameter

    def show_piece(self) -> None:
        """What modules have while the whole is not there."""
        self.show(self.sharded)


def divided_again(layout: DTensorSpec, mesh: DeviceMesh) -> DTensorSpec:
    """How a tensor-parallel parameter lies when `fully_shard` divides each rank's part of it over this mesh.

    Raises: ValueError unless both meshes are parts of one.
    """
    root, inner = mesh._root, layout.mesh
    names, inner_names = mesh.mesh_dim_names, inner.mesh_dim_names
    if inner._root != root or names is None or inner_names is None or set(names) & set(inner_names):
        raise ValueError(
            f"fully_shard: a parameter is a DTensor on {inner} already. To divide it over {mesh}, too, take both from "
            'one mesh with names: mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp")); '
            'parallelize_module(model, mesh["tp"], ...); fully_shard(model, mesh=mesh["dp"])'
        )
    pieces = math.prod(inner.size(i) for i, p in enumerate(layout.placements) if p.is_shard(0))
    own = Shard(0) if pieces == 1 else _StridedShard(0, split_factor=pieces)
    both = root if root.mesh_dim_names == names + inner_names else root[names + inner_names]
    return DTensorSpec(both, (*[Replicate()] * (mesh.ndim - 1), own, *layout.placements), layout.shape)


def divided_over(
    mesh: DeviceMesh, parameters: list[tuple[Any, list]], policy: MixedPrecisionPolicy, offload: bool
) -> ParamGroup:
    """The group of parameters that `fully_shard` divides over the last dimension of a mesh.

    Args:
        mesh: the ranks.
        parameters: each with all (module, name) that have it.
        policy: dtypes.
        offload: whether pieces are kept in main memory.
    """
    device = torch.device(mesh.device_type)  # where parameters are gathered
    if device.type == "cuda":
        device = torch.device("cuda", torch.cuda.current_device())
    made = []
    for parameter, places in parameters:
        sharded = Sharded(parameter, mesh, policy.param_dtype, torch.device("cpu") if offload else device)
        sharded.places = places
        sharded.show_piece()
        made.append(sharded)
    return ParamGroup(
        made, mesh.get_group(mesh.ndim - 1), mesh.get_group(0) if mesh.ndim == 2 else None, device, policy
    )


class ParamGroup:
    """The parameters that are gathered and divided together.

    Args:
        parameters: their pieces.
        group: the ranks that have the pieces.
        replicas: the ranks that have the same pieces, if there are any.
        device: where parameters are gathered.
        policy: dtypes.
    """

    def __init__(
        self, parameters: list[Any], group: Any, replicas: Any, device: Any, policy: MixedPrecisionPolicy
    ) -> None:
        self.parameters, self.group, self.replicas = parameters, group, replicas
        self.device, self.policy = device, policy
        self.gathered, self.pending = False, None  # type: bool, Any
        self.sync = self.reshard_after_backward = True
        self.divide = 0.0  # the factor that replaces the number of ranks, if it is set
        self.reduce_over_replicas = True
        self.family: list[ParamGroup] = []  # groups that all take part at the end of backward, used or not
        self.on_reduced: Callable[[Any], None] | None = None
        self.waiting: set[int] = set()  # parameters whose gradient has not arrived in this backward pass
        self.queued = False
        self.storages: dict[int, int] = {}  # id of a gathered parameter's storage -> its number

    # --- gathering ---

    def start(self) -> None:
        """Begins to gather, in the background."""
        if self.gathered or self.pending is not None or not self.parameters:
            return
        for p in self.parameters:
            p.renew()
        dtypes = {p.dtype for p in self.parameters}
        works = []
        for dtype in sorted(dtypes, key=str):
            chosen = [p for p in self.parameters if p.dtype is dtype]
            mine = torch.zeros(sum(p.padded for p in chosen), dtype=dtype, device=self.device)
            at = 0
            with torch.no_grad():
                for p in chosen:
                    piece = p.local.reshape(-1)
                    mine[at : at + piece.numel()].copy_(piece)
                    at += p.padded
            everyone = torch.empty(self.group.size(), at, dtype=dtype, device=self.device)
            work = collectives.all_gather_single(everyone, mine, self.group, async_op=True)
            works.append((work, chosen, everyone))
        self.pending = works

    def gather(self) -> None:
        """Gathers the parameters, and gives them to the modules."""
        if self.gathered:
            return
        self.start()
        self.storages = {}
        for work, chosen, everyone in self.pending or ():
            if work is not None:
                work.wait()
            for p, array in zip(chosen, self._wholes(chosen, everyone._array), strict=True):
                self._fill(p, array)
        for number, p in enumerate(self.parameters):
            self.storages[id(p.whole._storage)] = number
        self.pending, self.gathered = None, True

    def _wholes(self, chosen: list[Any], everyone: Any) -> Iterator[Any]:
        """The arrays of parameters, from the pieces of all ranks."""
        at = 0
        for p in chosen:
            rows = everyone[:, at : at + p.padded].reshape(-1, *p.shape[1:])[: p.shape[0]]
            yield STORAGES[rows.__class__].xp.ascontiguousarray(rows).reshape(p.shape)
            at += p.padded

    def _fill(self, p: Any, array: Any) -> None:
        if p.whole is None:
            p.whole = p.make_whole(share(array, STORAGES[array.__class__].of(array)))
            number = self.parameters.index(p)
            if p.requires_grad:
                p.whole.register_post_accumulate_grad_hook(lambda whole: self._arrived(number))
        p.whole._array, p.whole._memory = array, STORAGES[array.__class__].of(array)
        p.whole._requires_grad = p.requires_grad
        p.show(p.whole)

    def release(self) -> None:
        """Drops the gathered parameters. The leaves of the graph stay, with their shape and without memory."""
        if not self.gathered:
            return
        for p in self.parameters:
            array = p.whole._array
            xp = STORAGES[array.__class__].xp
            p.whole._array, p.whole._memory = xp.broadcast_to(xp.zeros((), array.dtype), p.shape), None
            p.show_piece()
        self.gathered, self.storages = False, {}

    # --- what the graph saves ---

    def pack(self, tensor: Any) -> Any:
        """What is saved in place of a gathered parameter or a view of it; None for other tensors."""
        storage = tensor._storage
        number = self.storages.get(id(storage))
        if number is None or self.parameters[number].whole._memory is not storage:
            return None
        array = tensor._array
        return self, number, array.shape, array.strides, storage.offset_of(array), array.dtype

    def unpack(self, number: int, shape: Any, strides: Any, offset: int, dtype: Any) -> Any:
        """The saved tensor; gathers the parameters if they are not there."""
        self.gather()
        storage = self.parameters[number].whole._storage
        return share(storage.strided(shape, strides, offset, dtype), storage)

    # --- gradients ---

    def expect(self) -> None:
        """Called when the backward pass reaches the module: gradients of all parameters are awaited."""
        if not self.queued:
            for group in self.family or [self]:
                group.waiting = {i for i, p in enumerate(group.parameters) if p.requires_grad}
                Variable._execution_engine.queue_callback(group.finish)
                group.queued = True

    def _arrived(self, number: int) -> None:
        self.expect()
        self.waiting.discard(number)
        if not self.waiting and not self.family:  # a family reduces at the end, in the same order on all ranks
            self._reduce()

    def finish(self) -> None:
        """Called at the end of the backward pass."""
        self.queued = False
        self._reduce()

    def _reduce(self) -> None:
        """Averages the gradients over the ranks; each keeps its piece. Then the parameters are released."""
        if self.sync:
            self._reduce_gradients()
        self.waiting = set()
        if self.reshard_after_backward:
            self.release()

    def _reduce_gradients(self) -> None:
        given = [p for p in self.parameters if p.requires_grad and (self.family or p.has_gradient)]
        for dtype in sorted({p.dtype for p in given}, key=str):
            self._reduce_scatter([p for p in given if p.dtype is dtype])

    def forget(self) -> None:
        """Drops what an interrupted pass has left: gathered parameters, gradients that were not divided yet."""
        for work, _, _ in self.pending or ():
            if work is not None:
                work.wait()
        self.pending, self.waiting, self.queued = None, set(), False
        for p in self.parameters:
            p.reduced = None
            if p.whole is not None:
                p.whole._grad = None
        self.release()

    def _reduce_scatter(self, given: list[Sharded]) -> None:
        size = self.group.size()
        dtype = self.policy.reduce_dtype or given[0].dtype
        buffer = torch.zeros(size, sum(p.padded for p in given), dtype=dtype, device=self.device)
        at = 0
        for p in given:
            if p.has_gradient:
                grad = p.whole._grad._array.reshape(p.shape[0], p.row)
                for rank in range(size):
                    rows = grad[rank * p.rows : (rank + 1) * p.rows]
                    buffer._array[rank, at : at + rows.size] = rows.reshape(-1)
                p.whole._grad = None
            at += p.padded
        mine = torch.empty(at, dtype=dtype, device=self.device)
        op = ReduceOp.SUM if self.divide else ReduceOp.AVG
        collectives.reduce_scatter_single(mine, buffer, op, self.group)
        self._add_waiting(given, mine)
        if self.replicas is not None:
            if not self.reduce_over_replicas:
                return
            collectives.all_reduce(mine, op, self.replicas)
        if self.divide:
            mine /= self.divide
        if self.on_reduced is not None:
            self.on_reduced(mine)
        at = 0
        for p in given:
            own = p.local
            piece = mine[at : at + own.numel()].reshape(own.shape).to(own.device, own.dtype, copy=True)
            p.sharded._grad = piece if p.sharded._grad is None else p.sharded._grad + piece
            at += p.padded

    def _add_waiting(self, given: list[Sharded], mine: Any) -> None:
        """Adds pieces of earlier passes that were not averaged over the replicas; or keeps these in the same way."""
        at = 0
        for p in given:
            part = mine[at : at + p.padded]
            if p.reduced is not None:
                part += p.reduced
            p.reduced = None if self.reduce_over_replicas else part
            at += p.padded
