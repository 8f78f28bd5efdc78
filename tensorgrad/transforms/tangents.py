"""The rules of forward mode: how the tangents of an op's results follow from those of its inputs.

A tangent is the derivative of a value along a direction: for `y = f(x)`, the tangent of y is J·t, the Jacobian times
the tangent of x. No op needs a rule of its own if what its row says already decides it (`rule_of`):

- a *pointwise* op's Jacobian is diagonal, so its formula, which multiplies by the transposed Jacobian, multiplies by
  the Jacobian as well. For complex numbers it multiplies by the conjugate: hence conj(formula(conj(t)));
- an op that is *linear* (views, casts, and rows that say so) is applied to the tangents;
- in a *reduction* each element contributes to one result: its formula for a gradient of ones gives the weights, and the
  tangent is the weighted sum;
- a Jacobian that is *symmetric* is its own transpose: the formula of the tangent is the tangent;
- an op that *selects* elements of its input selects those of the tangent;
- what is a *sample*, or changes in jumps only, has the tangent 0;
- an op with a *twin* runs as its twin, in simpler ops (transforms/forward.py);
- else the row's `jvp` says it.

Where nothing is recorded and no transform is further out, a row's `jvp_kernel` computes the tangent on arrays instead.

What is left is *transposed*: u ↦ Jᵀu, as the formulas compute it, is linear in u, so a backward pass through the
formulas gives J·t. It costs more than a rule, but is always right. `transposed()` lists these ops.

The rules are ordinary code over tensors: they are recorded if the ops are, and in forward mode further out the tangents
have tangents of their own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tensorgrad.autograd import engine
from tensorgrad.autograd.graph import Node
from tensorgrad.autograd.modes import GRAD
from tensorgrad.autograd.saved_tensors import save
from tensorgrad.autograd.views import edge_of
from tensorgrad.dispatch.generate import attribute_of
from tensorgrad.dispatch.kernel_errors import COMPOSED
from tensorgrad.dispatch.templates import has_array_backward
from tensorgrad.layouts import strided
from tensorgrad.rows.kernel_tables import OPS, REGISTRY, array_kernel
from tensorgrad.rows.op import Op, backward_arguments
from tensorgrad.rows.signature import LIST, OPTIONAL, arguments_of
from tensorgrad.rows.switches import LOCAL
from tensorgrad.storage.stubs import STORAGES
from tensorgrad.tensor import Tensor, share, wrap
from tensorgrad.transforms.transform import arrays_of, only_recorded, run_by_outer

Rule = Callable[[Op, tuple, list, Any], Any]  # (op, arguments, their tangents, result) -> tangents of the results

_RULES: dict[Op, Rule | None] = {}


def rule_of(op: Op) -> Rule | None:
    """The rule for an op; None for one without derivative, or that goes through its twin."""
    if op not in _RULES:
        _RULES[op] = _choose(op)
    return _RULES[op]


def _choose(op: Op) -> Rule | None:
    if op.jvp is not None:
        return _stated
    if op.selects is not None:
        return _selected
    if op.linear:
        return _linear
    if op.jacobian and op.wrt:
        return _BY_JACOBIAN[op.jacobian]
    if not op.wrt or op.twin is not None:
        return None
    if op.formulas and op.differentiable_outputs == 1:
        if op.kind == "pointwise":
            return _pointwise
        if op.kind == "reduction" and len(op.outputs) == 1:
            return _reduction
    return _transposed


def transposed() -> list[str]:
    """The names of the ops whose tangents need a backward pass through their formulas.

    >>> from tensorgrad.transforms.tangents import transposed
    >>> "exp" in transposed()
    False
    """
    return sorted(op.name for op in OPS.values() if rule_of(op) is _transposed)


# --- the rules -------------------------------------------------------------------------------------------------------


def _pointwise(op: Op, args: tuple, tangents: list, result: Tensor) -> Tensor | None:
    shape, dtype = result._array.shape, result._array.dtype
    backend = STORAGES[result._array.__class__].backend
    made = REGISTRY[backend, "device"]  # for the layout
    if made and STORAGES[result._array.__class__].layout is not strided and op.name not in made:
        return COMPOSED["tangent"](_pointwise, op, args, tangents, result)
    if _works_on_arrays(op, tangents, result):
        return _on_arrays(_by_backward, op, args, tangents, result)
    total = None
    for p, t in zip(op.params, tangents, strict=True):
        if t is None or p.name not in op.formulas:
            continue
        if t._array.shape != shape:
            t = t.expand(shape)
        if t._array.dtype is not dtype and (t._array.dtype.kind == "c") == (dtype.kind == "c"):
            t = t.to(result.dtype)
        formula = op.formulas[p.name]
        values = _arguments(op, args, (result,), arguments_of(formula))
        if dtype.kind == "c" or t._array.dtype.kind == "c":
            values["g"] = t.conj()
            part = formula(**values).conj()
            part = part.real if dtype.kind != "c" and part.is_complex() else part
        else:
            values["g"] = t
            part = formula(**values)
        total = part if total is None else total + part
    return total


def _works_on_arrays(op: Op, tangents: list, result: Any) -> bool:
    """Whether an op of one real tensor computes its gradient on arrays, and nothing is recorded."""
    if not (len(op.wrt) == len(op.takes_number) == 1 and isinstance(result, Tensor)):
        return False
    if not only_recorded(LOCAL.transforms):
        return False
    along, dtype = next(t for t in tangents if t is not None), result._array.dtype
    if dtype.kind == "c" or along._array.dtype is not dtype:
        return False
    if GRAD.enabled and (result.requires_grad or along.requires_grad):
        return False
    return bool(op.on_arrays or op.backward_kernel) or has_array_backward(op)


def _on_arrays(function: Callable, op: Op, *given: Any) -> Tensor:
    """What a function that computes on arrays makes of an op's arguments, tangents and result: recorded, one step."""
    return LOCAL.transforms[0].beside(_step(function, op), given) if LOCAL.transforms else function(op, *given)


@functools.cache
def _step(function: Callable, op: Op) -> Callable:
    """The function for one op, always the same object: two recordings of a program are compared."""
    step = functools.partial(function, op)
    functools.update_wrapper(step, function)
    return step


def _by_backward(op: Op, args: tuple, tangents: list, result: Tensor) -> Tensor:
    """The tangent of an op whose Jacobian is symmetric, where nothing is recorded: as its gradient, on arrays."""
    tangent: Tensor = next(t for t in tangents if t is not None)
    values = _arguments(op, args, (result,), (*op.saved, *op.kept))
    node = object.__new__(Node)
    node.op, node.edges, node.hooks = op, ((None, 0),), None
    node.saved, node.args = tuple(save(values[name]) for name in op.saved), tuple(values[name] for name in op.kept)
    before, GRAD.enabled = GRAD.enabled, False
    try:
        return op.compiled.backward(node, [tangent])[0]
    finally:
        GRAD.enabled = before


# (op, which arguments have a tangent) -> for each time that the op runs: the factor of each term that its tangent
# replaces, and the first factor of each other one, which is zero
_PARTS: dict[tuple, list[tuple[list[int], list[int]]]] = {}


def _linear(op: Op, args: tuple, tangents: list, result: Any) -> Any:
    """The sum over the factors of each term: the op on the factor's tangent, with the other terms zero.

    Terms are taken together as far as possible: `input * weight + bias` takes the op twice, not three times.
    """
    key = op, *[t is not None for t in tangents]
    parts = _PARTS.get(key)
    if parts is None:
        parts = _PARTS[key] = _parts(op, key[1:])
    total: Any = None
    for moving, still in parts:
        given = list(args)
        for at in moving:
            t = tangents[at]
            given[at] = _filled(t, args[at]) if t.__class__ is list else t
        for at in still:
            given[at] = None if op.params[at].kind is OPTIONAL else _zero(args[at])
        part = run_by_outer(op, tuple(given))
        total = part if total is None else _sum(total, part)
    return total


def _parts(op: Op, moves: tuple) -> list[tuple[list[int], list[int]]]:
    position = {p.name: i for i, p in enumerate(op.params)}
    terms = [[position[name] for name in term] for term in op.linear]
    waiting = [[at for at in term if moves[at]] for term in terms]
    parts = []
    while any(waiting):
        moving = [factors.pop(0) if factors else None for factors in waiting]
        still = [term[0] for term, at in zip(terms, moving, strict=True) if at is None]
        parts.append(([at for at in moving if at is not None], still))
    return parts


def _filled(tangents: Any, values: Any) -> Any:
    """A tangent; of a list of tensors, with zeros for those that have none."""
    if not isinstance(tangents, list):
        return tangents
    return [_zero(value) if t is None else t for t, value in zip(tangents, values, strict=True)]


def _zero(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_zero(v) for v in value]
    return value.new_zeros(value._array.shape) if isinstance(value, Tensor) else type(value)()


def _sum(a: Any, b: Any) -> Any:
    return a + b if isinstance(a, Tensor) else tuple(x + y for x, y in zip(a, b, strict=True))


def _reduction(op: Op, args: tuple, tangents: list, result: Tensor) -> Tensor | None:
    ((name, formula),) = op.formulas.items()
    values = _arguments(op, args, (result,), arguments_of(formula))
    values["g"] = result.new_ones(result._array.shape)
    at = next(i for i, p in enumerate(op.params) if p.name == name)
    weights = formula(**values)
    if weights is None:  # the result changes in jumps only
        return None
    weighted = engine.fit(weights, args[at]._array.shape, args[at]._array.dtype).conj() * tangents[at]
    if weighted.is_complex() and not result.is_complex():
        weighted = weighted.real
    if op.kind == "reduction":
        plain = _prepared(op, args)
        dim, keepdim = plain["dim"], plain.get("keepdim", False)
    else:
        lead = result._array.ndim
        dim, keepdim = (tuple(range(lead - weighted._array.ndim, 0)) if lead else None), False
    return weighted.sum(dim, keepdim) if dim != () else weighted


def _symmetric(op: Op, args: tuple, tangents: list, result: Any) -> Tensor:
    if _works_on_arrays(op, tangents, result):
        return _on_arrays(_by_backward, op, args, tangents, result)
    ((name, formula),) = op.formulas.items()
    return _along(op, formula, "g", name, args, tangents, result)


def _selected(op: Op, args: tuple, tangents: list, result: Any) -> Tensor:
    name = op.params[0].name
    return _along(op, op.selects.gather, name, name, args, tangents, result)  # type: ignore[union-attr]


def _along(op: Op, function: Callable, parameter: str, name: str, args: tuple, tangents: list, result: Any) -> Tensor:
    """A function named for its parameters as a formula is, with the tangent of an input for one of them."""
    tangent = next(t for p, t in zip(op.params, tangents, strict=True) if p.name == name)
    if tangent is None:
        return _constant(op, args, tangents, result)
    values = _arguments(op, args, _results(result), arguments_of(function))
    values[parameter] = tangent
    return function(**values)


def _constant(op: Op, args: tuple, tangents: list, result: Any) -> Any:
    made = tuple(r.new_zeros(r._array.shape) for r in _results(result)[: op.differentiable_outputs])
    return made[0] if isinstance(result, Tensor) else made


def _results(result: Any) -> tuple:
    return (result,) if isinstance(result, Tensor) else result


_BY_JACOBIAN: dict[str, Rule] = {"zero": _constant, "symmetric": _symmetric, "weights": _reduction}


def _stated(op: Op, args: tuple, tangents: list, result: Any) -> Any:
    results = _results(result)
    jvp: Any = op.jvp
    names = arguments_of(jvp)
    values = _arguments(op, args, results, tuple(name for name in names if name[-2:] != "_t"))
    for p, t, value in zip(op.params, tangents, args, strict=True):
        if f"{p.name}_t" in names:
            values[f"{p.name}_t"] = _zero(value) if t is None and value is not None else _filled(t, value)
    return jvp(**values)


_KERNELS: dict[tuple[Op, type], Callable | None] = {}  # (op, class of its arrays) -> its `jvp_kernel` for these


def has_kernel(op: Op, args: tuple, transforms: tuple) -> bool:
    """Whether the row's `jvp_kernel` computes the tangent, with these transforms further out."""
    if not only_recorded(transforms):
        return False
    array = args[0]._array
    return _kernel_of(op, transforms[0].class_of(array) if transforms else array.__class__) is not None


def _kernel_of(op: Op, kind: type) -> Callable | None:
    """The row's `jvp_kernel` for a class of arrays; None if there is none for it."""
    key = op, kind
    if key not in _KERNELS:
        storage = STORAGES[kind]
        _KERNELS[key] = None if storage.xp is None else storage.guard(array_kernel(op.jvp_kernel, storage.xp))
    return _KERNELS[key]


def by_kernel(op: Op, args: tuple, tangents: list, result: Tensor) -> Tensor:
    """The tangent of the result by the row's `jvp_kernel`."""
    return _on_arrays(_by_kernel, op, args, tangents, result)


def _by_kernel(op: Op, args: tuple, tangents: list, result: Tensor) -> Tensor:
    known = {**_prepared(op, args), op.outputs[0]: result._array}
    known |= {f"{p.name}_t": None if t is None else t._array for p, t in zip(op.params, tangents, strict=True)}
    kernel = _kernel_of(op, args[0]._array.__class__)
    return wrap(kernel(*[known[name] for name in backward_arguments(op.jvp_kernel)]))  # type: ignore[misc]


def _transposed(op: Op, args: tuple, tangents: list, result: Any) -> Any:
    """A backward pass through the formulas: the gradient of Jᵀu by u, along t."""
    recorded = GRAD.enabled
    stops: list[Any] = list(args)  # what the op is given
    starts: list[Tensor | None] = []  # the tangents of its differentiable inputs
    for i, (p, value, t) in enumerate(zip(op.params, args, tangents, strict=True)):
        if value is None and p.name in op.wrt:
            starts.append(None)
        elif p.is_tensor and value is not None:
            many = [*value] if p.kind is LIST else [value]
            along = t if isinstance(t, list) else [t] * len(many)
            made = [_start(v, u is not None, recorded) for v, u in zip(many, along, strict=True)]
            stops[i] = made if p.kind is LIST else made[0]
            if p.name in op.wrt:
                starts += along
    before, GRAD.enabled = GRAD.enabled, True
    try:
        again = run_by_outer(op, tuple(stops))
        results = (again,) if isinstance(again, Tensor) else again
        node = next((r._edge[0] for r in results if r._edge is not None), None)
        if node is None:
            return None
        places = []  # u, for each differentiable result
        for r in results[: op.differentiable_outputs]:
            u = r.detach().new_zeros(r._array.shape)
            u._requires_grad = True
            places.append(u)
        pulled = node.op.compiled.on_tensors(node, [*places, *[None] * (len(results) - len(places))])
        roots = []
        for g, t in zip(pulled, starts, strict=True):
            if g is not None and t is not None and g.requires_grad:
                g = engine.fit(g, t._array.shape, t._array.dtype)
                roots.append((edge_of(g), t))
        found = engine.run(
            roots, keep_graph=recorded, create_graph=recorded, targets=[(u, 0) for u in places]
        ) if roots else [None] * len(places)  # fmt: skip
    finally:
        GRAD.enabled = before
    return tuple(found) if len(op.outputs) > 1 else found[0]


def _start(value: Any, moves: bool, recorded: bool) -> Any:
    """An argument as the formulas are to see it: with a place in the graph if it has a tangent."""
    if not isinstance(value, Tensor) or (recorded and value.requires_grad):
        return value
    made = share(value._array, value._storage)  # the same array: what is known about it further out stays known
    made._requires_grad = moves
    return made


# --- the arguments of formulas ---------------------------------------------------------------------------------------


_SOURCES: dict[tuple, list[tuple[str, str, int]]] = {}  # (op, names) -> where the values of these names come from


def _arguments(op: Op, args: tuple, results: tuple, names: tuple[str, ...]) -> dict[str, Any]:
    """The values of a formula's parameters, but for `g`."""
    sources = _SOURCES.get((op, names))
    if sources is None:
        sources = _SOURCES[op, names] = [_source(op, name) for name in names if name != "g"]
    values, plain = {}, None
    for name, kind, at in sources:
        if kind == "tensor":
            values[name] = args[at]
        elif kind == "output":
            values[name] = results[at]
        elif kind == "plain":
            plain = plain or _prepared(op, args)
            values[name] = plain[name]
        else:
            values[name] = _attribute(op, args, name)
    return values


def _source(op: Op, name: str) -> tuple[str, str, int]:
    if name in op.outputs:
        return name, "output", op.outputs.index(name)
    at = next((i for i, p in enumerate(op.params) if p.name == name), -1)
    return name, "attribute" if at < 0 else "tensor" if op.params[at].is_tensor else "plain", at


def _attribute(op: Op, args: tuple, name: str) -> Any:
    """The value of `input_shape`, `tensors_dtype` and the like."""
    tensor, _, attribute = name.rpartition("_")
    value = next(v for p, v in zip(op.params, args, strict=True) if p.name == tensor)
    if isinstance(value, list | tuple):
        return [attribute_of(v, attribute) for v in value]
    return attribute_of(value, attribute)


def _prepared(op: Op, args: tuple) -> dict[str, Any]:
    """The arguments as the row's `prepare` leaves them: plain values are normalized, tensors are arrays."""
    given = arrays_of(args)
    skip = op.prepare is None or (
        op.kind == "reduction"
        and all(v is None for p, v in zip(op.params, args, strict=True) if p.name in ("dim", "dtype"))
    )
    values = given if skip else op.prepare(*given)  # type: ignore[misc]
    return dict(zip([p.name for p in op.params], values, strict=True))
