"""The rules of `vmap`: how an op runs on all samples at once.

The arrays of an op on batched tensors (transforms/batch.py) are batched themselves, and this file has their kernels. A
kernel takes the values, which have the batch as their first dimension, and runs one op on them. Which one follows from
the row (`rule_of`):

- *pointwise* ops and *samples* align the dimensions of their operands, and broadcast;
- *reductions*, and ops that work along dimensions, count these from one on;
- *views* show the same part of every sample;
- an op with a *twin* runs as its twin, whose ops have rules;
- else the row's `batch` says it. It may be the name of a rule that several ops share:

  ``"leading"``  the op treats leading dimensions alike: the batch becomes one of them (dims are counted from one on)
  ``"broadcast"``  the same, and they broadcast: operands without a batch stay as they are
  ``"fold"``  the first dimension of all tensors is a batch of its own: the two become one

  ``"no batch"``  what the op returns has another shape for each sample: an error
  ``"sparse"``  sparse tensors have no batches, in PyTorch either: an error

  or a function whose parameters are named as those of the op (tensors are then values with the batch first, numbers and
  the like as they are), and may be `size` (how many samples), `mapped` (the names of the tensors with a batch; the
  others come as they are), and `mapped_indices` for a list `indices` (for each whether it has one). It returns the
  results, with the batch first; or `Shared` for one that is the same for all samples.

Rules are ordinary code over tensors: they are recorded if the values are. Where they are not, and no transform is
further out, a row's `batch_kernel` computes the results on arrays instead, and its `batch_backward` the gradients; to
fold dimensions takes no tensors then either. (A recorder that has kernels as steps may be further out.)
Their parameters are named as those of the op or of its `backward_kernel`; arrays with a batch have it first. There may
be `size`, `mapped`, and `whole`: the row's own kernel, or backward kernel, for arrays. What is left runs in a loop over
the samples, with a warning. `looped()` lists these ops.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from time import perf_counter
from types import SimpleNamespace
from typing import Any

from tensorgrad.dispatch.promotion import as_array
from tensorgrad.layouts import strided
from tensorgrad.rows.kernel_tables import OPS, RULES, array_kernel, run_kernel
from tensorgrad.rows.op import Op, backward_arguments
from tensorgrad.rows.signature import LIST, arguments_of
from tensorgrad.rows.switches import GRAD, LOCAL, OBSERVERS
from tensorgrad.settings import warn_once
from tensorgrad.storage.stubs import STORAGES
from tensorgrad.tensor import Tensor, share, wrap
from tensorgrad.transforms import batch_views
from tensorgrad.transforms.batch import Batch, BatchedArray, BatchedStorage, Shared
from tensorgrad.transforms.transform import only_recorded, run_by_outer

Rule = Callable[[Op, Batch, tuple], Any]  # (op, level, arguments) -> the results as tensors, the batch first

_RULES: dict[Op, Rule | None] = {}


def rule_of(op: Op) -> Rule | None:
    """The rule for an op; None for one that goes through its twin."""
    if op not in _RULES:
        _RULES[op] = _choose(op)
    return _RULES[op]


def _choose(op: Op) -> Rule | None:
    if op.batch:
        return _stated if callable(op.batch) else _NAMED[op.batch]
    if op.kind in _BY_KIND:
        return _BY_KIND[op.kind]
    return None if op.twin is not None else _loop


def looped() -> list[str]:
    """The names of the ops that `vmap` runs in a loop over the samples.

    >>> from tensorgrad.transforms.batch_rules import looped
    >>> "exp" in looped()
    False
    """
    return sorted(op.name for op in OPS.values() if rule_of(op) is _loop)


def batched_kernel(op: Op, storage: Any) -> Callable | None:
    """The kernel of an op for batched arrays; None for other ones."""
    if storage is not BatchedStorage:
        return None
    rule = rule_of(op)
    by_rule = functools.partial(_by_twin, op) if rule is None else functools.partial(_by_rule, op, rule)
    on_values = _named if op.batch_kernel else _ON_ARRAYS.get(op.batch)
    return by_rule if on_values is None else functools.partial(_by_kernel, op, on_values, by_rule)


def _by_rule(op: Op, rule: Rule, *values: Any) -> Any:
    """Runs an op's rule on the values."""
    level, mapped = _level_among(values)
    result = rule(op, level, values) if mapped else level.run_below(op, tuple([_value(v) for v in values]))
    if isinstance(result, Tensor):
        return BatchedArray(level, result, mapped)
    return tuple([
        BatchedArray(level, r.value, False) if r.__class__ is Shared else BatchedArray(level, r, mapped)
        for r in result
    ])  # fmt: skip


def _by_twin(op: Op, *values: Any) -> Any:
    """Runs an op's twin on batched tensors that require no grad: what is recorded is the op itself, and the values."""
    tensors: list[Any] = []
    for p, v in zip(op.params, values, strict=True):
        if p.kind is LIST:
            tensors.append([share(x, None) for x in v])
        else:
            tensors.append(share(v, None) if v.__class__ is BatchedArray else v)
    before, LOCAL.autocast = LOCAL.autocast, None
    try:
        result = op.twin(*tensors)  # type: ignore[misc]
    finally:
        LOCAL.autocast = before
    results = (result,) if isinstance(result, Tensor) else result
    arrays = tuple([r._array for r in results] + [None] * (len(op.outputs) + len(op.cache) - len(results)))
    return arrays if len(arrays) > 1 else arrays[0]


def behind(level: Batch, values: Any) -> tuple[list, list[int], Any] | None:
    """The arrays of all samples behind an op's arrays, the places of those with a batch, and their class of storage.

    Other values are as they are. None if these may not be used as arrays: if something further out has to know, a
    transform or the graph of the values; or if they are of several classes, or of one without arrays.
    """
    if not only_recorded(level.around):
        return None
    recorder = level.around[0] if level.around else None
    storage = seen = None
    arrays, mapped, in_graph = list(values), [], GRAD.enabled
    for i, array in enumerate(values):
        if array.__class__ is BatchedArray:
            value = array.value
            if in_graph and value._requires_grad and value.requires_grad:
                return None
            if array.mapped:
                mapped.append(i)
            if recorder is not None:
                recorder.shares(value)
            arrays[i] = array = value._array
        kind = array.__class__ if recorder is None else recorder.class_of(array)
        if kind is not seen and kind in STORAGES:
            seen, found = kind, STORAGES[kind]
            if found.xp is None or storage not in (None, found):
                return None
            storage = found
    return None if storage is None else (arrays, mapped, storage)


def storage_of(level: Batch, values: Any) -> Any:
    """The class of storage of all values, if these may be used as arrays; else None."""
    found = behind(level, values)
    return None if found is None else found[2]


def run_on_arrays(function: Callable, op: Op, level: Batch, found: tuple) -> Any:
    """What `function(op, level, found)` makes of what is `behind` values.

    Where that is recorded, it is one step, and the results are tensors.
    """
    if not level.around:
        return function(op, level, found)
    arrays, mapped, storage = found
    tensors = tuple([share(a, None) if a.__class__ in STORAGES else a for a in arrays])
    try:
        return level.around[0].beside(_step(function, op, level.size, tuple(mapped), storage), tensors)
    except _Declined:
        return NotImplemented


class _Declined(Exception):
    """A kernel does not take such arrays."""


@functools.lru_cache(maxsize=1024)
def _step(function: Callable, op: Op, size: int, mapped: tuple[int, ...], storage: Any) -> Callable:
    """A function of tensors, and always the same one: two recordings of a program are compared."""
    level = SimpleNamespace(size=size)

    def step(*values: Any) -> tuple:
        arrays = [v._array if isinstance(v, Tensor) else v for v in values]
        made = function(op, level, (arrays, list(mapped), storage))
        if made is NotImplemented:
            raise _Declined
        made = made if made.__class__ is tuple else (made,)
        return tuple([None if a is None else wrap(a if a.__class__ in STORAGES else as_array(a)) for a in made])

    step.__name__ = step.__qualname__ = f"{op.name}_of_batch"
    return step


def on_arrays(
    kernel: str | Callable, whole: Callable, level: Batch, found: tuple[list, list[int], Any], names: tuple[str, ...]
) -> Any:
    """Runs a row's `batch_kernel` or `batch_backward` on what is `behind` the values of these names."""
    arrays, mapped, storage = found
    function, places = _function_of(kernel, storage.xp, names)
    given: list[Any] = []
    for place in places:
        if place.__class__ is int:
            given.append(arrays[place])
        elif place == "size":
            given.append(level.size)
        else:
            given.append(whole if place == "whole" else {names[i] for i in mapped})
    return function(*given)


@functools.cache
def _function_of(kernel: str | Callable, xp: Any, names: tuple[str, ...]) -> tuple[Callable, list]:
    """The function that a row names, and where its arguments come from: from these places, or what they are."""
    at = {"size": "size", "mapped": "mapped", "whole": "whole"} | {name: i for i, name in enumerate(names)}
    return array_kernel(kernel, xp), [at[name] for name in backward_arguments(kernel)]


def _by_kernel(op: Op, on_values: Callable, by_rule: Callable, *values: Any) -> Any:
    """Runs an op on the arrays of the values, if these may be used; else by its rule."""
    level: Any = None
    for v in values:
        if v.__class__ is BatchedArray:
            level = v.level
            break
    found = None if level is None else behind(level, values)
    if found is not None and found[1]:
        start = perf_counter() if OBSERVERS else None
        made = run_on_arrays(on_values, op, level, found)
        if made is not NotImplemented:
            made, count = made if made.__class__ is tuple else (made,), len(op.outputs)
            arrays = [BatchedArray(level, as_value(a), True) for a in made[:count]]
            if start is not None:
                _observed(op, values, [a.value for a in arrays], start)
            kept = [a._array if a.__class__ is Tensor else a for a in made[count:]]
            return (*arrays, *kept) if len(made) > 1 else arrays[0]
    return by_rule(*values)


def as_value(made: Any) -> Tensor:
    """The tensor of an array that a kernel has made; what is one already is that of a recording."""
    return made if made.__class__ is Tensor else wrap(made if made.__class__ in STORAGES else as_array(made))


def _observed(op: Op, values: tuple, results: list, start: float) -> None:
    """Tells observers of an op that ran on arrays what they would see of one on values."""
    seconds = perf_counter() - start
    args, result = tuple([_value(v) for v in values]), results[0] if len(results) == 1 else tuple(results)
    for observe in OBSERVERS:
        observe(op, args, result, start, seconds)


def _named(op: Op, level: Batch, found: tuple) -> Any:
    """The results as arrays, by the row's `batch_kernel`."""
    return on_arrays(op.batch_kernel, _whole(op), level, found, _names(op))


@functools.cache
def _whole(op: Op) -> Callable:
    """The row's own kernel."""
    return functools.partial(run_kernel, op.name)


@functools.cache
def _names(op: Op) -> tuple[str, ...]:
    return tuple(p.name for p in op.params)


@functools.cache
def _to_fold(op: Op) -> tuple[list[int], list[int]]:
    """Which parameters are tensors, and which are the shape of the result."""
    tensors = [i for i, p in enumerate(op.params) if p.is_tensor]
    return tensors, [i for i, p in enumerate(op.params) if p.name == "shape"]


def _folded(op: Op, level: Batch, found: tuple) -> Any:
    """The results as arrays, for `"fold"`."""
    if op.prepare is not None or not level.size:
        return NotImplemented
    (given, mapped, _), size = found, level.size
    tensors, shapes = _to_fold(op)
    for i in tensors:
        array = given[i]
        if array is not None:
            if i not in mapped or not array.flags.c_contiguous:
                return NotImplemented
            given[i] = array.reshape(array.shape[0] * array.shape[1], *array.shape[2:])
    for i in shapes:
        given[i] = (given[i][0] * size, *given[i][1:])
    made = run_kernel(op.name, *given)
    if made.__class__ is not tuple:
        return made.reshape(size, made.shape[0] // size, *made.shape[1:])
    apart = []
    for i, a in enumerate(made):
        apart.append(a.reshape(size, a.shape[0] // size, *a.shape[1:]) if i < len(op.outputs) else a)
    return tuple(apart)


_ON_ARRAYS: dict[Any, Callable] = {"fold": _folded}


RULES["batch rule"] = batched_kernel
Batch.rule_of, Batch.storage_of = staticmethod(rule_of), storage_of


def _level_among(values: tuple) -> tuple[Batch, bool]:
    """The level of batched arrays, and whether one of them has a batch."""
    level, mapped = None, False
    for value in values:
        if value.__class__ is BatchedArray:
            level, mapped = value.level, mapped or value.mapped
        elif value.__class__ is list and value and value[0].__class__ is BatchedArray:
            level, mapped = value[0].level, mapped or any(v.mapped for v in value)
    return level, mapped  # type: ignore[return-value]


def _value(v: Any) -> Any:
    """The value of a batched array, or of several; anything else as it is."""
    if v.__class__ is BatchedArray:
        return v.value
    return [_value(x) for x in v] if v.__class__ is list and v and v[0].__class__ is BatchedArray else v


# --- values ----------------------------------------------------------------------------------------------------------


def expanded(level: Batch, v: Any) -> Any:
    """The value with the batch first, also of an array without one."""
    if v.__class__ is BatchedArray:
        return v.value if v.mapped else v.value.expand(level.size, *v.shape)
    return [expanded(level, x) for x in v] if v.__class__ is list and v and v[0].__class__ is BatchedArray else v


# --- the rules -------------------------------------------------------------------------------------------------------


def _aligned(op: Op, level: Batch, values: tuple) -> Any:
    """Operands broadcast: each gets dimensions of size 1 between the batch and its own, as many as it lacks."""
    given, rank = list(values), 0
    for v in values:
        if v.__class__ is BatchedArray and v.ndim > rank:
            rank = v.ndim
    for i, v in enumerate(values):
        if v.__class__ is BatchedArray:
            given[i] = v.value if v.ndim == rank or not v.mapped else level.aligned(v, rank)
    for i in _dims_of(op):
        given[i] = shifted(given[i])
    return level.run_below(op, tuple(given))


def _reduction(op: Op, level: Batch, values: tuple) -> Any:
    given = list(values)
    x = given[0]
    value = x.value
    names = [p.name for p in op.params]
    at = names.index("dim")
    dim = given[at]
    if not x.ndim:
        value = value.unsqueeze(1)
        given[at] = 1 if op.params[at].annotation == "int" else (1,)
        if "keepdim" in names:
            given[names.index("keepdim")] = False
    elif dim is None or dim == ():
        given[at] = tuple(range(1, x.ndim + 1))
    else:
        given[at] = shifted(dim)
    given[0] = value
    return level.run_below(op, tuple(given))


def shifted(dim: Any) -> Any:
    """Dimensions of a sample as those of a value. Negative ones count from the end, and stay."""
    if dim is None:
        return None
    if dim.__class__ is int:
        return dim + 1 if dim >= 0 else dim
    return tuple([d + 1 if d >= 0 else d for d in dim])


DIMS = ("dim", "dims", "dimension", "dim0", "dim1", "dim2")


@functools.cache
def _dims_of(op: Op) -> tuple[int, ...]:
    """Which parameters of an op are dimensions."""
    return tuple(i for i, p in enumerate(op.params) if p.name in DIMS)


def _leading(op: Op, level: Batch, values: tuple) -> Any:
    """The batch is a further leading dimension."""
    given, scalar = [], False
    along = _dims_of(op)
    for p, v in zip(op.params, values, strict=True):
        if p.is_tensor:
            value = expanded(level, v)
            if along and v.__class__ is BatchedArray and not v.ndim:
                value, scalar = value.unsqueeze(1), True
            given.append(value)
        elif p.name == "shape":
            given.append((level.size, *v))
        else:
            given.append(shifted(v) if p.name in DIMS else v)
    result = level.run_below(op, tuple(given))
    if not scalar:
        return result
    return result.squeeze(1) if isinstance(result, Tensor) else tuple(r.squeeze(1) for r in result)


def _fold(op: Op, level: Batch, values: tuple) -> Any:
    """The batch and the first dimension of the tensors become one, and are two again in the results."""
    given, first = list(values), None
    for i, (p, v) in enumerate(zip(op.params, values, strict=True)):
        if p.is_tensor and v is not None:
            value = expanded(level, v)
            size, first, *rest = value._array.shape
            given[i] = _with_shape(level, value, (size * first, *rest))
        elif p.name == "shape":
            given[i] = (v[0] * level.size, *v[1:])
    result = level.run_below(op, tuple(given))
    if isinstance(result, Tensor):
        return _with_shape(level, result, (level.size, first, *result._array.shape[1:]))
    return tuple([_with_shape(level, r, (level.size, first, *r._array.shape[1:])) for r in result])


def _with_shape(level: Batch, value: Tensor, shape: tuple) -> Tensor:
    """The value with another shape: a view, unless the first two dimensions are apart in memory."""
    array = value._array
    if STORAGES[array.__class__].layout is strided and array.flags.c_contiguous:
        return level.run_below(OPS["view"], (value, shape))
    with level.off():
        return value.reshape(shape)


def _stated(op: Op, level: Batch, values: tuple) -> Any:
    rule, sources, tensors = _plan(op)
    given: list[Any] = []
    for source in sources:
        if source.__class__ is int:
            v = values[source]
            given.append(_value(v) if v.__class__ is BatchedArray or v.__class__ is list else v)
        elif source == "size":
            given.append(level.size)
        elif source == "mapped":
            given.append({name for name, i in tensors if _is_mapped(values[i])})
        else:
            given.append([_is_mapped(x) for x in values[source[0]]])
    with level.off():
        made = rule(*given)
    return _loop(op, level, values) if made is NotImplemented else made  # not with a batch of these arguments


@functools.cache
def _plan(op: Op) -> tuple[Any, list, list[tuple[str, int]]]:
    """A row's `batch`, where the arguments of that come from, and the tensors among the op's parameters.

    An argument is one of the op's (its number), or for a list which of its tensors have a batch, "size" or "mapped".
    """
    rule: Any = op.batch
    at: dict[str, Any] = {f"mapped_{p.name}": (i,) for i, p in enumerate(op.params) if p.kind is LIST}
    at |= {"size": "size", "mapped": "mapped"} | {p.name: i for i, p in enumerate(op.params)}
    tensors = [(p.name, i) for i, p in enumerate(op.params) if p.is_tensor]
    return rule, [at[name] for name in arguments_of(rule)], tensors


def _is_mapped(v: Any) -> bool:
    if v.__class__ is list:
        return any(_is_mapped(x) for x in v)
    return v.__class__ is BatchedArray and v.mapped


def _refused(op: Op, level: Batch, values: tuple) -> Any:
    raise RuntimeError(
        "vmap: We do not support batching operators that can output dynamic shape. Attempted to vmap over "
        f"aten::{op.name}. Please file an issue at https://github.com/pytorch/pytorch/issues if you need this feature."
    )


def _sparse(op: Op, level: Batch, values: tuple) -> Any:
    raise RuntimeError(f"vmap: sparse tensors have no batches. Attempted to vmap over {op.name}.")


def _warn(name: str) -> None:
    warn_once(
        f"There is a performance drop because we have not yet implemented the batching rule for {name}. It runs in a "
        "loop over the samples. (torch.func.looped_ops() lists these ops.)"
    )


def _loop(op: Op, level: Batch, values: tuple) -> Any:
    """Runs the op on one sample after the other."""
    _warn(op.name)
    rows = []
    with level.off():
        for i in range(max(level.size, 1)):
            rows.append(run_by_outer(op, tuple([_sample(v, i, level.size) for v in values])))
        if isinstance(rows[0], Tensor):
            return _joined(rows, level.size)
        return tuple([_joined(list(column), level.size) for column in zip(*rows, strict=True)])


def _sample(v: Any, i: int, size: int) -> Any:
    if v.__class__ is BatchedArray:
        if not v.mapped:
            return v.value
        return v.value.select(0, i) if size else v.value.new_zeros(v.shape)
    return [_sample(x, i, size) for x in v] if v.__class__ is list else v


def _joined(samples: list[Tensor], size: int) -> Tensor:
    return run_by_outer(OPS["stack"], (samples, 0)) if size else samples[0].new_zeros((0, *samples[0].shape))


def _view(op: Op, level: Batch, values: tuple) -> Any:
    x, *given = values
    name, value, args = batch_views.shifted(op.name, x.value, x.shape, tuple(given))
    return level.run_below(OPS[name], (value, *args))


def _same(op: Op, level: Batch, values: tuple) -> Any:
    return level.run_below(op, tuple([_value(v) for v in values]))


_BY_KIND: dict[str, Rule] = {
    "pointwise": _aligned, "reduction": _reduction, "same shape": _leading, "view": _view, "views": _leading,
    "cast": _same, "sample": _aligned,
}  # fmt: skip
_NAMED: dict[str, Rule] = {
    "leading": _leading, "broadcast": _aligned, "fold": _fold, "no batch": _refused, "sparse": _sparse
}  # fmt: skip
