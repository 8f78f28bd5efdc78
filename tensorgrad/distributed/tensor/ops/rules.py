"""On which pieces an op may run, as a table: row -> function that lists the possibilities along one mesh dimension.

A possibility is `(placements of the tensor arguments, placement of the result, length)`: each rank runs the op on its
pieces, and has its piece of the result. `length` is that of the whole result along the dimension that is divided. That
all are replicated is always possible and not listed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tensorgrad.distributed.tensor.placement_types import Partial, Placement, Replicate, Shard

__all__ = ["RULES", "Possibility", "pointwise"]

R, P = Replicate(), Partial()


class Possibility(NamedTuple):
    """One way to run an op along a dimension of the mesh."""

    inputs: tuple[Placement, ...]
    output: Any  # a placement; of a custom operator, one for each of its results
    length: int | None = None

    @property
    def outputs(self) -> tuple[Placement, ...]:
        """The placements of all results."""
        return self.output if isinstance(self.output, tuple) else (self.output,)


def pointwise(tensors: Sequence[Any], values: dict[str, Any]) -> list[Possibility]:
    """Every dimension of the result may be divided; arguments that are broadcast along it are replicated."""
    ndim = max(t.ndim for t in tensors)
    found = []
    for dim in range(ndim):
        lengths = [t.shape[dim - ndim + t.ndim] if dim - ndim + t.ndim >= 0 else 1 for t in tensors]
        length = 0 if 0 in lengths else max(lengths)
        inputs = tuple(R if n == 1 and length != 1 else Shard(dim - ndim + t.ndim) for t, n in zip(tensors, lengths))
        if all(t.ndim == ndim or not isinstance(i, Shard) or i.dim >= 0 for t, i in zip(tensors, inputs)):
            found.append(Possibility(inputs, Shard(dim), length))
    return found


def _sum_of_terms(tensors: Sequence[Any], values: dict[str, Any]) -> list[Possibility]:
    """`a + b`: also terms of sums, if both are tensors."""
    both = [Possibility((P,) * len(tensors), P)] if len(tensors) == 2 else []
    return pointwise(tensors, values) + both


def _product(tensors: Sequence[Any], values: dict[str, Any]) -> list[Possibility]:
    """`a * b`: one factor may be terms of a sum."""
    terms = [(P,)] if len(tensors) == 1 else [(P, R), (R, P)]
    return pointwise(tensors, values) + [Possibility(inputs, P) for inputs in terms]


def _quotient(tensors: Sequence[Any], values: dict[str, Any]) -> list[Possibility]:
    """`a / b`: the dividend may be terms of a sum."""
    first = tensors[0] is values["input"]
    return pointwise(tensors, values) + ([Possibility((P, R)[: len(tensors)], P)] if first else [])


def _linear_map(tensors: Sequence[Any], values: dict[str, Any]) -> list[Possibility]:
    """An op of one tensor that keeps shapes and sums."""
    return [*pointwise(tensors, values), Possibility((P,), P)]


def _along(*kept: str) -> Callable[..., list[Possibility]]:
    """An op that mixes the elements along some dimensions (the argument of this name); others may be divided."""

    def rule(tensors: Sequence[Any], values: dict[str, Any]) -> list[Possibility]:
        x = tensors[0]
        dims = next(values[name] for name in kept if name in values)
        mixed = {d % x.ndim for d in ((dims,) if isinstance(dims, int) else dims)} if x.ndim else set()
        return [Possibility((Shard(d),), Shard(d), x.shape[d]) for d in range(x.ndim) if d not in mixed]

    return rule


def _normalization(tensors: Sequence[Any], values: dict[str, Any]) -> list[Possibility]:
    """layer_norm, rms_norm: the dimensions that are not normalized may be divided."""
    x, *others = tensors
    axes = values["axes"]
    normalized = {d % x.ndim for d in ((axes,) if isinstance(axes, int) else axes)}
    return [
        Possibility((Shard(d), *[R] * len(others)), Shard(d), x.shape[d]) for d in range(x.ndim) if d not in normalized
    ]


def _linear(tensors: Sequence[Any], values: dict[str, Any]) -> list[Possibility]:
    """x (*, k) times w (n, k), plus b (n,)."""
    x, w, *b = tensors
    if w.ndim != 2:
        return []
    last = x.ndim - 1
    rows = [Possibility((Shard(d), R, *[R] * len(b)), Shard(d), x.shape[d]) for d in range(last)]
    columns = Possibility((R, Shard(0), *[Shard(0)] * len(b)), Shard(last), w.shape[0])
    return [*rows, columns, Possibility((Shard(last), Shard(1), *[P] * len(b)), P)]


def _matmul(tensors: Sequence[Any], values: dict[str, Any]) -> list[Possibility]:
    """Matrices, or stacks of matrices of the same number of dimensions; a single matrix may follow a stack."""
    a, b = tensors
    if a.ndim < 2 or b.ndim < 2 or (a.ndim != b.ndim and b.ndim != 2):
        return []
    last, same = a.ndim - 1, a.ndim == b.ndim
    found = [Possibility((Shard(last - 1), R), Shard(last - 1), a.shape[-2])]
    found += [Possibility((R, Shard(b.ndim - 1)), Shard(last), b.shape[-1])]
    found += [Possibility((Shard(last), Shard(b.ndim - 2)), P), Possibility((P, R), P), Possibility((R, P), P)]
    for d in range(last - 1):
        if not same:
            found.append(Possibility((Shard(d), R), Shard(d), a.shape[d]))
        elif a.shape[d] == b.shape[d]:
            found.append(Possibility((Shard(d), Shard(d)), Shard(d), a.shape[d]))
    return found


def _sum(tensors: Sequence[Any], values: dict[str, Any]) -> list[Possibility]:
    """Summing along the divided dimension leaves a term of the sum on every rank."""
    x, keepdim = tensors[0], values["keepdim"]
    dims = values["dim"]
    dims = range(x.ndim) if dims is None else (dims,) if isinstance(dims, int) else dims or range(x.ndim)
    summed = {d % x.ndim for d in dims} if x.ndim else set()
    found = [Possibility((P,), P)]
    for d in range(x.ndim):
        if d in summed:
            found.append(Possibility((Shard(d),), P))
        else:
            after = d if keepdim else d - sum(other < d for other in summed)
            found.append(Possibility((Shard(d),), Shard(after), x.shape[d]))
    return found


def _transposed(order: Callable[[Any, dict[str, Any]], list[int]]) -> Callable[..., list[Possibility]]:
    def rule(tensors: Sequence[Any], values: dict[str, Any]) -> list[Possibility]:
        x = tensors[0]
        dims = [d % x.ndim for d in order(x, values)] if x.ndim else []
        shards = [Possibility((Shard(d),), Shard(dims.index(d)), x.shape[d]) for d in range(x.ndim)]
        return [*shards, Possibility((P,), P)]

    return rule


def _swapped(x: Any, values: dict[str, Any]) -> list[int]:
    order = list(range(x.ndim))
    first, second = values["dim0"] % max(x.ndim, 1), values["dim1"] % max(x.ndim, 1)
    order[first], order[second] = second, first
    return order


def _embedding(tensors: Sequence[Any], values: dict[str, Any]) -> list[Possibility]:
    """Rows of a table: the indices may be divided, or the columns."""
    weight, indices = tensors
    found = [Possibility((R, Shard(d)), Shard(d), indices.shape[d]) for d in range(indices.ndim)]
    return [*found, Possibility((Shard(1), R), Shard(indices.ndim), weight.shape[1])]


def _attention(tensors: Sequence[Any], values: dict[str, Any]) -> list[Possibility]:
    """The dimensions before the last two (batch, heads) may be divided where all arguments have them."""
    query, key, value, *masks = tensors
    if masks or not query.ndim == key.ndim == value.ndim:
        return []
    return [
        Possibility((Shard(d),) * 3, Shard(d), query.shape[d])
        for d in range(query.ndim - 2)
        if query.shape[d] == key.shape[d] == value.shape[d]
    ]


RULES: dict[str, Callable[[Sequence[Any], dict[str, Any]], list[Possibility]]] = {
    "add": _sum_of_terms, "sub": _sum_of_terms, "mul": _product, "div": _quotient,
    **dict.fromkeys(("neg", "to_copy", "clone_copy", "alias"), _linear_map),
    **dict.fromkeys(("where", "masked_fill"), pointwise),
    **dict.fromkeys(("softmax", "log_softmax"), _along("dim")),
    **dict.fromkeys(("layer_norm", "rms_norm"), _normalization),
    **dict.fromkeys(("matmul", "mm", "bmm"), _matmul),
    "linear": _linear, "sum": _sum, "embedding": _embedding, "attention": _attention,
    "t": _transposed(lambda x, values: list(range(x.ndim))[::-1]),
    "transpose": _transposed(_swapped), "permute": _transposed(lambda x, values: list(values["dims"])),
}  # fmt: skip
