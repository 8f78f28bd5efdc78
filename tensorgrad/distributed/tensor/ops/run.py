"""Runs an op on distributed tensors: chooses how, moves the pieces accordingly, and runs it on every rank's pieces.

An op without a rule runs on the whole tensors, on every rank.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tensorgrad.dispatch import slow_path
from tensorgrad.distributed.tensor import transitions
from tensorgrad.distributed.tensor._dtensor_spec import DTensorSpec
from tensorgrad.distributed.tensor._redistribute import redistribute_local_tensor
from tensorgrad.distributed.tensor.dtensor import DTensor, as_dtensor, mixed
from tensorgrad.distributed.tensor.ops import composites, custom
from tensorgrad.distributed.tensor.ops.rules import RULES, Possibility, pointwise
from tensorgrad.distributed.tensor.placement_types import Partial, Placement, Replicate, Shard
from tensorgrad.rows.signature import LIST
from tensorgrad.tensor import Tensor

__all__ = ["run"]


def run(function: Any, args: tuple, options: dict[str, Any]) -> Any:
    """Runs a row's function on arguments of which some are distributed.

    Raises:
        RuntimeError: some tensors are distributed and others are not, or they are on different meshes.
        NotImplementedError: `out=` is given.
    """
    if function in custom.WAYS:
        return run_custom(function, args, options)
    op = getattr(function, "op", None)
    name = op.name if op is not None else getattr(function, "__name__", str(function))
    names = [p.name for p in op.params] if op is not None else []
    if op is None or not options.keys() <= set(names):
        raise NotImplementedError(f"{name}: not supported for distributed tensors{' with out=' if options else ''}")
    args = tuple(options.get(name, value) for name, value in zip(names, slow_path.bind(op, args), strict=True))
    flat: list[Tensor] = []
    slots: list[Any] = []  # for each argument: the number of a tensor, a list of such numbers, or None
    for p, value in zip(op.params, args):
        if p.kind is LIST:
            slots.append(list(range(len(flat), len(flat) + len(value))))
            flat += value
        elif isinstance(value, Tensor):
            slots.append(len(flat))
            flat.append(value)
        else:
            slots.append(None)
    specs = _specs(name, flat)
    mesh = specs[0].mesh
    values = dict(zip(names, args))
    rule = RULES.get(name) or (pointwise if op.kind == "pointwise" else None)
    possible = [Possibility((Replicate(),) * len(flat), Replicate())]
    if rule is not None and LIST not in [p.kind for p in op.params]:
        possible += rule(flat, values)
    chosen = [_cheapest(possible, specs, flat, i) for i in range(mesh.ndim)]
    local = _pieces(flat, specs, chosen)
    given = [
        value if slot is None else [local[n] for n in slot] if isinstance(slot, list) else local[slot]
        for slot, value in zip(slots, args)
    ]
    result = slow_path.run(op, tuple(given))
    outputs = tuple(way.output for way in chosen)
    if isinstance(result, tuple):
        return tuple(_wrapped(r, mesh, outputs, chosen) if isinstance(r, Tensor) else r for r in result)
    return _wrapped(result, mesh, outputs, chosen)


def run_custom(operator: Any, args: tuple, options: dict[str, Any]) -> Any:
    """Runs an operator of `torch.library` on arguments of which some are distributed."""
    args, options = operator._schema.bind(args, options)
    flat = [value for value in (*args, *options.values()) if isinstance(value, Tensor)]
    specs = _specs(str(operator), flat)
    mesh = specs[0].mesh
    ways = [Possibility(inputs, results) for inputs, results in custom.possible(operator, list(args), options, specs)]
    chosen = [_cheapest(ways, specs, flat, dim) for dim in range(mesh.ndim)]
    pieces = iter(_pieces(flat, specs, chosen))
    given = [next(pieces) if isinstance(value, Tensor) else value for value in args]
    named = {name: next(pieces) if isinstance(value, Tensor) else value for name, value in options.items()}
    return custom.wrapped(operator(*given, **named), mesh, [(way.inputs, way.output) for way in chosen])


def _pieces(tensors: Sequence[Tensor], specs: list[DTensorSpec], chosen: list[Possibility]) -> list[Tensor]:
    """This rank's pieces of the arguments, moved as the chosen ways demand."""
    pieces = []
    for number, (tensor, spec) in enumerate(zip(tensors, specs)):
        piece = Tensor.as_subclass(tensor, Tensor)
        wanted = tuple(way.inputs[number] for way in chosen)
        if wanted != spec.placements:
            piece = redistribute_local_tensor(piece, spec, wanted)
        for i, way in enumerate(chosen):
            if wanted[i].is_replicate() and not all(p.is_replicate() for p in way.outputs):
                piece = transitions.add_gradients(piece, spec.mesh.get_group(i))
        pieces.append(piece)
    return pieces


def _wrapped(result: Tensor, mesh: Any, placements: tuple[Placement, ...], chosen: list[Possibility]) -> DTensor:
    shape = list(result._array.shape)
    for way in chosen:
        if isinstance(way.output, Shard):
            assert way.length is not None
            shape[way.output.dim] = way.length
    return as_dtensor(result, DTensorSpec(mesh, placements, tuple(shape)))


def _specs(name: str, tensors: Sequence[Tensor]) -> list[DTensorSpec]:
    """The layouts of all arguments; numbers in ordinary tensors without dimensions count as replicated."""
    known = [t._spec for t in tensors if isinstance(t, DTensor)]
    mesh = known[0].mesh
    if any(spec.mesh != mesh for spec in known):
        raise RuntimeError(f"{name}: distributed tensors are on different meshes: {[spec.mesh for spec in known]}")
    found = []
    for tensor in tensors:
        if isinstance(tensor, DTensor):
            found.append(tensor._spec)
        elif tensor.ndim == 0 or DTensor._implicit_replication:
            found.append(DTensorSpec(mesh, (Replicate(),) * mesh.ndim, tuple(tensor.shape)))
        else:
            raise mixed(name, known)
    return found


def _cheapest(possible: list[Possibility], specs: list[DTensorSpec], tensors: list[Tensor], i: int) -> Possibility:
    """The possibility that moves the least along a dimension of the mesh; of equals the first."""
    size = specs[0].mesh.size(i)

    def cost(way: Possibility) -> float:
        moved = 0.0
        for spec, tensor, wanted in zip(specs, tensors, way.inputs):
            before = spec.placements[i]
            if before != wanted:
                moved += _share(before, wanted, size) * math.prod(spec.shape) * tensor.element_size() + 1e-3
        return moved

    return min(possible, key=cost)


def _share(before: Placement, after: Placement, size: int) -> float:
    """How much of a tensor a rank receives in a move."""
    if isinstance(before, Partial):
        return 2.0 if after.is_replicate() else 1.0
    if isinstance(before, Shard):
        return 1.0 if after.is_replicate() else 1.0 / size if after.is_shard() else 3.0
    return 0.0


DTensor._run_op = staticmethod(run)
composites.install()
