"""Every transform over PyTorch's op database: what it computes at once, compared with one derivative after the other.

    python -m tests.conformance.transforms                     every record
    python -m tests.conformance.transforms linalg.svd add      these records, with all that is wrong

A case is a function of some tensors. Its gradients, one backward pass for each of three cotangents, are what all other
ways have to agree with (`WAYS`): batched gradients, recorded ones, `jacrev` and `vmap` in chunks, `jacfwd`, `jvp`,
second derivatives through each of them, and dimensions at other places. Where a way is refused, PyTorch's must be, too.
`OPTIONS` has cases that the database lacks: options of gradients, numbers without dimensions, sparse gradients, custom
functions, checkpoints.
"""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import tensorgrad as tg
from tensorgrad.utils._pytree import tree_flatten, tree_unflatten
from tests.conformance import each_record, opdb
from tests.conformance.forward import SECOND_APART
from tests.conformance.opdb_bridge import close, copied, leaves, to_tg, translate
from tests.support.custom_functions import cube

ELEMENTS = 40  # in the inputs of a sample, so that Jacobians are small
ROWS = 24  # elements of the results, for whole Jacobians
ULP = 1e-6


class Case:
    """A function of tensors, `run(library, *tensors)`, at `points(library)`. Its results are real numbers."""

    def __init__(self, name: str, run: Callable, points: Callable, without: tuple = ()):
        self.name, self._run, self._points, self.without = name, run, points, without
        self.kept: list[bool] | None = None  # which of the results require grad

    def points(self, library) -> list:
        """The tensors, which do not require grad."""
        return [p.detach() for p in self._points(library)]

    def run(self, library, *tensors) -> tuple:
        """The results that have gradients."""
        library.manual_seed(0)
        found = tree_flatten(self._run(library, *tensors))[0]
        found = [r for r in found if isinstance(r, library.Tensor) and r.is_floating_point()]
        if self.kept is None:
            self.kept = [r.requires_grad for r in found]
        return tuple([r for r, kept in zip(found, self.kept, strict=True) if kept])

    def __repr__(self):
        return self.name


def case_of(call, without: tuple = ()) -> Case:
    """A call of the database, by its floating-point tensors."""

    def given(library):
        made = copied((call.inputs, call.kwargs)) if library is torch else to_tg((call.inputs, call.kwargs))
        return tree_flatten(_lists(made))

    def points(library):
        return [x for x in given(library)[0] if isinstance(x, library.Tensor) and x.requires_grad]

    def run(library, *tensors):
        values, spec = given(library)
        rest = iter(tensors)
        values = [(next(rest) if x.requires_grad else x) if isinstance(x, library.Tensor) else x for x in values]
        inputs, kwargs = tree_unflatten(values, spec)
        result = (call.torch_function if library is torch else call.function)(*inputs, **kwargs)
        process = call.process if library is torch or call.process is None else translate(call.process)
        return result if process is None else process(result)

    return Case(str(call), run, points, without)


def _lists(value):
    if isinstance(value, dict):
        return {k: _lists(v) for k, v in value.items()}
    return type(value)(_lists(v) for v in value) if type(value) in (tuple, list) else value


# --- one derivative after the other ----------------------------------------------------------------------------------


def wave(library, shape, nr: int):
    """Numbers between -1 and 1 that have no pattern."""
    count = int(np.prod(shape, dtype=int))
    return library.cos(library.arange(count, dtype=library.float64) * (nr + 1.3) + nr).reshape(tuple(shape))


def _recorded(library, case: Case):
    points = [p.requires_grad_() for p in case.points(library)]
    return points, list(case.run(library, *points))


def _cotangents(library, outputs, count: int = 3) -> list[list]:
    return [[wave(library, o.shape, n + 7 * k).to(o.dtype) for k, o in enumerate(outputs)] for n in range(count)]


def _stacked(library, rows: list) -> list:
    """Each column of the rows as one tensor; None stays."""
    return [None if c[0] is None else library.stack([dense(x) for x in c]) for c in zip(*rows)]


def dense(x):
    return x.to_dense() if x is not None and x.is_sparse else x


def gradients(library, case: Case) -> list:
    """The gradients for three cotangents, each by a backward pass of its own."""
    points, outputs = _recorded(library, case)
    rows = [
        library.autograd.grad(outputs, points, row, retain_graph=True, allow_unused=True)
        for row in _cotangents(library, outputs)
    ]
    return _stacked(library, rows)


def _rows(library, case: Case) -> list:
    """The Jacobian of the joined results, by backward passes."""
    points, outputs = _recorded(library, case)
    joined = library.cat([o.reshape(-1) for o in outputs])
    found = []
    for i in range(len(joined)):
        row = library.autograd.grad(joined[i], points, retain_graph=True, allow_unused=True)
        found.append([
            library.zeros_like(p) if g is None else g for g, p in zip(row, points, strict=True)
        ])  # fmt: skip
    return _stacked(library, found)


def _second(library, case: Case) -> list:
    """The gradients of the gradients for one cotangent, by two backward passes."""
    points, outputs = _recorded(library, case)
    first = library.autograd.grad(
        outputs, points, _cotangents(library, outputs, 1)[0], create_graph=True, allow_unused=True
    )
    return _again(library, [g for g in first], points, lambda g: g)


def _again(library, first: list, points: list, one: Callable) -> list:
    first = [(one(g), k) for k, g in enumerate(first) if g is not None and g.requires_grad]
    if not first:
        return [library.zeros_like(p) for p in points]
    weights = [wave(library, g.shape, 3 + k).to(g.dtype) for g, k in first]
    found = library.autograd.grad([g for g, _ in first], points, weights, allow_unused=True)
    return [library.zeros_like(p) if g is None else g for g, p in zip(found, points, strict=True)]


# --- the ways --------------------------------------------------------------------------------------------------------


def _joined(library, case: Case) -> Callable:
    def function(*points):
        return library.cat([o.reshape(-1) for o in case.run(library, *points)])

    return function


def _all(case_points: list) -> tuple:
    return tuple(range(len(case_points)))


def batched(library, case, **options):
    """`is_grads_batched`."""
    points, outputs = _recorded(library, case)
    rows = [library.stack(column) for column in zip(*_cotangents(library, outputs))]
    found = library.autograd.grad(outputs, points, rows, is_grads_batched=True, allow_unused=True, **options)
    return [dense(g) for g in found]


def vmapped(library, case):
    """`vmap` over a function that goes back through a graph from outside, along the last dimension, in chunks."""
    points, outputs = _recorded(library, case)
    rows = [library.stack(column, -1) for column in zip(*_cotangents(library, outputs))]

    def back(*row):
        found = library.autograd.grad(outputs, points, row, retain_graph=True, allow_unused=True)
        return tuple([library.zeros_like(p) if g is None else g for g, p in zip(found, points, strict=True)])

    found = library.func.vmap(back, in_dims=-1, out_dims=-1, chunk_size=2)(*rows)
    return [g.movedim(-1, 0) for g in found]


def twice_batched(library, case):
    """Second derivatives through recorded batched gradients: of the first row."""
    points, outputs = _recorded(library, case)
    rows = [library.stack(column) for column in zip(*_cotangents(library, outputs))]
    first = library.autograd.grad(outputs, points, rows, is_grads_batched=True, allow_unused=True, create_graph=True)
    return _again(library, list(first), points, lambda g: g[0])


def by_rows(library, case, chunk_size=None):
    """`jacrev`."""
    points = case.points(library)
    return list(library.func.jacrev(_joined(library, case), _all(points), chunk_size=chunk_size)(*points))


def by_columns(library, case):
    """`jacfwd`."""
    points = case.points(library)
    return list(library.func.jacfwd(_joined(library, case), _all(points), randomness="same")(*points))


def vectorized(library, case):
    """`autograd.functional.jacobian(vectorize=True)`."""
    points = tuple(case.points(library))
    return list(library.autograd.functional.jacobian(_joined(library, case), points, vectorize=True))


def along(library, case):
    """`jvp` along two directions, in one `vmap`."""
    points = case.points(library)
    directions = [library.stack([wave(library, p.shape, 5 + n) for n in range(2)]).to(p.dtype) for p in points]

    def product(*tangents):
        return library.func.jvp(_joined(library, case), tuple(points), tangents)[1]

    return [library.func.vmap(product, randomness="same")(*directions)]


def _along_by_rows(library, case):
    points, rows = case.points(library), _rows(library, case)
    found = []
    for n in range(2):
        parts = [
            (row.reshape(len(row), -1) * wave(library, p.shape, 5 + n).to(p.dtype).reshape(-1)).sum(1)
            for row, p in zip(rows, points, strict=True)
        ]
        found.append(sum(parts))
    return [library.stack(found)]


def second_along(library, case):
    """The second derivatives that `_second` has, with forward mode and a backward pass through it."""
    points = case.points(library)
    cotangents = _cotangents(library, _recorded(library, case)[1], 1)[0]

    def slope(*points):
        total = 0
        for o, c in zip(case.run(library, *points), cotangents, strict=False):
            total = total + (o * c).sum()
        return total

    directions = tuple([wave(library, p.shape, 3 + k).to(p.dtype) for k, p in enumerate(points)])
    function = library.func.grad(slope, _all(points))
    return list(library.func.jvp(function, tuple(points), directions)[1])


# name -> (the way, what it has to agree with, whether that is a whole Jacobian)
WAYS: dict[str, tuple[Callable, Callable, bool]] = {
    "batched gradients": (batched, gradients, False),
    "recorded batched gradients": (functools.partial(batched, create_graph=True), gradients, False),
    "vmap over a backward pass, in chunks": (vmapped, gradients, False),
    "second derivatives of batched gradients": (twice_batched, _second, False),
    "jacrev": (by_rows, _rows, True),
    "jacrev in chunks": (functools.partial(by_rows, chunk_size=2), _rows, True),
    "jacfwd": (by_columns, _rows, True),
    "jacobian(vectorize=True)": (vectorized, _rows, True),
    "jvp in vmap": (along, _along_by_rows, True),
    "jvp of grad": (second_along, _second, False),
}


FORWARD = ("jacfwd", "jvp in vmap")  # they differ from gradients that leave something out on purpose


def check(case: Case, ways=tuple(WAYS)) -> list[str]:
    """In which of the ways a case has other derivatives than one after the other."""
    problems, known = [], {}
    for name in ways:
        if name in case.without:
            continue
        way, plainly, whole = WAYS[name]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if "size" not in known:
                try:
                    outputs = _recorded(tg, case)[1]
                    known["size"] = sum(o.numel() for o in outputs)
                    known["alike"] = len({t.dtype for t in (*outputs, *case.points(tg))}) == 1
                except Exception:
                    return []  # other tests look at that
            if not known["size"] or (whole and (known["size"] > ROWS or not known["alike"])):
                continue  # (a tangent has its result's dtype, a gradient its input's)
            if plainly not in known:
                try:
                    known[plainly] = plainly(tg, case)
                except Exception:
                    known[plainly] = None  # it has no such derivative
            if known[plainly] is None:
                continue
            try:
                found = way(tg, case)
            except Exception as error:
                if not _refused(way, case):
                    problems.append(f"{name}: {type(error).__name__}: {str(error)[:300]}   ({case})")
                continue
        problems += [f"{name}: {p}   ({case})" for p in _differences(found, known[plainly])]
    return problems


def _refused(way: Callable, case: Case) -> bool:
    """Whether PyTorch refuses it, too."""
    try:
        way(torch, case)
    except Exception:
        return True
    return False


def _differences(found: list, expected: list) -> list[str]:
    if len(found) != len(expected):
        return [f"{len(found)} results, expected {len(expected)}"]
    problems = []
    for i, (f, e) in enumerate(zip(found, expected, strict=True)):
        if f is None or e is None:
            if (f is None) != (e is None) and bool((e if f is None else f).any()):
                problems.append(f"gradient {i}: {f}, expected {e}")
            continue
        f, e = dense(f.detach()), dense(e.detach())
        if f.shape != e.shape or f.dtype != e.dtype:
            problems.append(f"gradient {i}: {f.dtype}{list(f.shape)}, expected {e.dtype}{list(e.shape)}")
        elif not close(f.numpy(), e.numpy(), "float64", ULP):
            problems.append(f"gradient {i}: {f.reshape(-1)[:6].tolist()}, expected {e.reshape(-1)[:6].tolist()}")
    return problems


def cases(record, limit: int) -> list[Case]:
    """Some calls of a record, evenly spread: the first ones have few options, the last ones more."""
    if not record.supports_autograd or torch.float64 not in record.supported_dtypes("cpu"):
        return []
    without = ("jvp of grad",) if opdb.record_name(record) in SECOND_APART else ()
    found = opdb.calls(record, torch.float64, True, limit, ELEMENTS)
    return [case_of(c, without) for c in found if any(t.requires_grad for t in leaves((c.inputs, c.kwargs)))]


# --- cases that the database lacks -----------------------------------------------------------------------------------


def _at(*shapes) -> Callable:
    return lambda library: [wave(library, shape, k) for k, shape in enumerate(shapes)]


def _attention(**options):
    def run(library, q, k, v):
        given = {n: x(library) if callable(x) else x for n, x in options.items()}
        return library.nn.functional.scaled_dot_product_attention(q, k, v, **given)

    return run


def _custom(**members) -> Callable:
    """A custom function; `members` say more than `forward` and `backward`."""

    def run(library, x):
        def forward(ctx, x):
            ctx.save_for_backward(x)
            ctx.save_for_forward(x)
            return x * x, x.sum()

        def backward(ctx, g, h):
            (x,) = ctx.saved_tensors
            return 2 * g * x + h

        def jvp(ctx, t):
            (x,) = ctx.saved_tensors
            return 2 * t * x, t.sum()

        own = {"forward": staticmethod(forward), "backward": staticmethod(backward), "jvp": staticmethod(jvp)}
        made = type("Square", (library.autograd.Function,), own | members)
        return made.apply(x)

    return run


def _copied_in(library, x):
    y = library.zeros(3, dtype=x.dtype)
    y.copy_(x)
    y[:2] = x[1:] * y[:2]
    y.mul_(x)
    return y * x


def _captured(library, x):
    """A gradient with respect to something else, which depends on the point."""
    inner = library.func.grad(lambda w: (w**2 * x.sin()).sum())
    return inner(library.ones(3, dtype=x.dtype)) * x


def _indices(library, *values):
    return library.tensor(values)


def _table(library, w, **options):
    return library.nn.functional.embedding(_indices(library, 1, 3, 1), w, **options)


def _checkpointed(library, x):
    from importlib import import_module

    checkpoint = import_module(f"{library.__name__}.utils.checkpoint").checkpoint
    return checkpoint(lambda x: x.sin() * x, x, use_reentrant=False)


_HEADS = _at((2, 3, 4), (2, 3, 4), (2, 3, 4))
OPTIONS = [
    Case("attention", _attention(), _HEADS),
    Case("attention, four samples of four rows", _attention(), _at((4, 4, 3), (4, 4, 3), (4, 4, 3))),
    Case("attention without leading dimensions", _attention(is_causal=True), _at((4, 3), (4, 3), (4, 2))),
    Case("attention, causal", _attention(is_causal=True), _HEADS),
    Case("attention, scaled and dropped", _attention(dropout_p=0.4, scale=0.3), _HEADS),
    Case("attention, masked", _attention(attn_mask=lambda l: wave(l, (3, 3), 4)), _HEADS),
    Case("attention, boolean mask", _attention(attn_mask=lambda l: wave(l, (2, 3, 3), 4) > 0), _HEADS),
    Case("attention, broadcast", _attention(), _at((2, 1, 3, 4), (1, 2, 3, 4), (3, 4))),
    Case("attention, shared heads", _attention(enable_gqa=True), _at((4, 2, 3), (2, 2, 3), (2, 2, 3))),
    Case("embedding", _table, _at((4, 2))),
    Case("embedding, padding_idx", functools.partial(_table, padding_idx=1), _at((4, 2)), FORWARD),
    Case("embedding, by frequency", functools.partial(_table, scale_grad_by_freq=True), _at((4, 2)), FORWARD),
    Case("embedding, sparse", functools.partial(_table, sparse=True), _at((4, 2))),
    Case("embedding, sparse padding_idx", functools.partial(_table, sparse=True, padding_idx=3), _at((4, 2)), FORWARD),
    Case("embedding, max_norm", lambda l, w: _table(l, w * 1, max_norm=0.5), _at((4, 2))),
    Case("gather", lambda l, x: x.gather(1, _indices(l, [0, 2], [1, 1])), _at((2, 3))),
    *[
        Case(f"gather, sparse_grad={sparse}, {x} at {index}", run, _at(x))
        for sparse in (False, True)
        for x, index in (((), 0), ((), [0, 0]), ((3,), 1), ((3,), [1, 1]), ((2, 3), [[0, 2], [1, 1]]))
        for run in [lambda l, x, i=index, s=sparse: l.gather(x, 0, l.tensor(i), sparse_grad=s)]
        if x != (2, 3) or not sparse or index
    ],
    Case("custom function", _custom(), _at((3,))),
    Case("custom function, 0-d", _custom(), _at(())),
    Case("custom function with generate_vmap_rule", lambda l, x: cube(l).apply(x), _at((3,))),
    Case("written in place", _copied_in, _at((3,))),
    Case("a derivative inside", _captured, _at((3,))),
    Case("checkpoint", _checkpointed, _at((3,))),
    Case("dropout", lambda l, x: l.nn.functional.dropout(x, 0.4), _at((6,))),
    Case("affine_grid", lambda l, x: l.nn.functional.affine_grid(x, (1, 1, 2, 2), align_corners=False), _at((1, 2, 3))),
    Case("layer_norm", lambda l, x, w, b: l.nn.functional.layer_norm(x, (3,), w, b), _at((2, 3), (3,), (3,))),
    Case("rms_norm", lambda l, x, w: l.nn.functional.rms_norm(x, (3,), w), _at((2, 3), (3,))),
    Case("group_norm", lambda l, x, w, b: l.nn.functional.group_norm(x, 2, w, b), _at((2, 4, 2), (4,), (4,))),
    Case("batch_norm", lambda l, x, w: l.nn.functional.batch_norm(x, None, None, w, training=True), _at((4, 3), (3,))),
    *[
        Case(f"cross_entropy, {reduction}", run, _at((3, 4)))
        for reduction in ("none", "sum", "mean")
        for run in [
            lambda l, x, r=reduction: l.nn.functional.cross_entropy(x, _indices(l, 0, 2, 1), reduction=r),
        ]
    ],
    Case(
        "cross_entropy, smoothed and weighted",
        lambda l, x: l.nn.functional.cross_entropy(
            x, _indices(l, 0, 2, 1), wave(l, (4,), 5) + 2, label_smoothing=0.1, ignore_index=1
        ),
        _at((3, 4)),
    ),
    Case("cross_entropy of probabilities", lambda l, x, p: l.nn.functional.cross_entropy(x, p), _at((3, 4), (3, 4))),
    Case("max_pool", lambda l, x: l.nn.functional.max_pool2d(x, 2), _at((1, 2, 4, 4))),
    Case("conv", lambda l, x, w, b: l.nn.functional.conv1d(x, w, b), _at((2, 2, 5), (3, 2, 2), (3,))),
    Case("linear", lambda l, x, w, b: l.nn.functional.linear(x, w, b), _at((2, 3), (4, 3), (4,))),
    Case("linear of one row", lambda l, x, w, b: l.nn.functional.linear(x, w, b), _at((3,), (4, 3), (4,))),
    Case("bilinear", lambda l, a, b, w: l.nn.functional.bilinear(a, b, w), _at((2, 3), (2, 2), (2, 3, 2))),
    Case("lstm", lambda l, x, h, c, *w: l.lstm(x, (h, c), w, True, 1, 0.0, False, False, False),
         _at((2, 1, 2), (1, 1, 2), (1, 1, 2), (8, 2), (8, 2), (8,), (8,))),
    Case("gru", lambda l, x, h, *w: l.gru(x, h, w, True, 1, 0.0, False, False, False),
         _at((2, 1, 2), (1, 1, 2), (6, 2), (6, 2), (6,), (6,))),
    Case("numbers without dimensions", lambda l, a, b: (a * b, a.sin().pow(2), l.stack([a, b]).prod(), a.expand(2)),
         _at((), ())),
    Case("a sum over nothing", lambda l, x: (x.sum(()), x.mean(), x.prod(0), x.amax()), _at((3,))),
    Case("views", lambda l, x: (x.t(), x[1], x.diagonal(), x[:, None, 1], x.unfold(0, 2, 1), x.split(1)[0]),
         _at((2, 2))),
    Case("indices", lambda l, x: (x[_indices(l, 1, 0, 1)], x[x > 0.0].sum(), x.index_select(1, _indices(l, 0, 0))),
         _at((2, 2))),
    Case("sparse product", lambda l, x: l.sparse.mm(l.eye(2, dtype=x.dtype).to_sparse(), x), _at((2, 2))),
    Case("no gradient for one", lambda l, x, y: x * y.detach(), _at((2,), (2,))),
]  # fmt: skip


def main(arguments: list[str]) -> None:
    """Checks the records that are named, or all of them and the other cases."""

    def problems(record: Any) -> list[str] | None:
        if opdb.resolve(record) is None:
            return None
        return [p for case in cases(record, 4) for p in check(case)]

    if not arguments:
        print(*[p for case in OPTIONS for p in check(case)], sep="\n")
    done = each_record.run(arguments, problems, {})
    each_record.report(done, "right in every way", "")


if __name__ == "__main__":
    main(sys.argv[1:])
