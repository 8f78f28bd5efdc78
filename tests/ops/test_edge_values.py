"""nan, infinities, signed zeros, subnormal and largest numbers, in every family and against torch.

Every pointwise op on all pairs of edge values, in arrays of few elements, of many and of one (kernels have ways of
their own for each), and the gradients there; reductions, scans, sorting, softmax, norms, pooling, losses and products
on all triples of edge values; the limits of integers; empty tensors; and drawn shapes.

An element agrees if it is torch's, bit for bit where an op has one right answer (EXACT), and a zero has torch's sign.
Where torch's single precision is off, its double precision decides. What differs all the same stands in DEVIATIONS
with its reason, for the operands that it holds for. (The tables are in tests/support/edge_cases.py.)
"""

import math
import re

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from tests.support.compare import evaluate, type_name

pytest.importorskip("torch", reason="torch is the oracle of these tests")

import torch

import tensorgrad as tg
from tests.conformance.opdb_bridge import leaves, numpy_of, plain_name, to_tg
from tests.support.device import ON_DEVICE
from tests.support.edge_cases import (
    ALONG,
    DEVIATIONS,
    EXACT,
    EXPRESSIONS,
    FLOATS,
    GRADIENT_DEVIATIONS,
    OF_INTEGERS,
    POLYNOMIAL,
    RTOL,
    SIGNLESS,
    TERNARY,
    edges,
    inf,
    loose,
    nan,
    triples,
)

pytestmark = pytest.mark.filterwarnings("ignore")

MANY = 5000  # elements from which every kernel takes its way for large arrays


# --- one expression under both libraries -----------------------------------------------------------------------------


def evaluated(library, expression: str, operands: dict):
    """Returns the tensors in the value of an expression, or the exception that it raises."""
    value = evaluate(library, expression, inf=inf, nan=nan, **operands)
    return value if isinstance(value, Exception) else leaves(value)


def alike(actual: np.ndarray, expected: np.ndarray, rtol: float, signs: bool = True) -> np.ndarray:
    """Elementwise: equal to a tolerance, nan with nan, and (`signs`) zeros of one sign."""
    with np.errstate(all="ignore"):
        if expected.dtype.kind == "c":
            return alike(actual.real, expected.real, rtol, signs) & alike(actual.imag, expected.imag, rtol, signs)
        if expected.dtype.kind != "f":
            return actual == expected
        near = np.abs(actual - expected) <= rtol * np.abs(expected) + (8 * np.finfo(expected.dtype).tiny if rtol else 0)
        near &= np.isfinite(actual) & np.isfinite(expected)
        same = (actual == expected) | (np.isnan(actual) & np.isnan(expected)) | near
        zeros = (actual == 0) & (expected == 0)
        return same & ~(zeros & (np.signbit(actual) != np.signbit(expected))) if signs else same


def disagreements(expression: str, operands: dict, rtol: float) -> tuple[list[str], bool]:
    """Elements that differ from torch's, described; and whether DEVIATIONS excused any.

    Results have the operands' leading dimension, which is how an element is traced back to them.
    """
    found, theirs = evaluated(tg, expression, to_tg(operands)), evaluated(torch, expression, operands)
    if isinstance(theirs, Exception) or isinstance(found, Exception):
        without = isinstance(theirs, NotImplementedError) or "not implemented for" in str(theirs)
        if type_name(theirs) == type_name(found) or (without and not isinstance(found, Exception)):
            return [], False  # a dtype that only PyTorch's kernel has not
        return [f"{found!r:.150}, expected {theirs!r:.150}"], False
    problems, excused = [], False
    for i, (e, a) in enumerate(zip(theirs, found, strict=True)):
        if e.shape != a.shape or plain_name(e.dtype) != plain_name(a.dtype):
            problems.append(f"{plain_name(a.dtype)}{list(a.shape)}, expected {plain_name(e.dtype)}{list(e.shape)}")
            continue
        expected, actual = numpy_of(e), numpy_of(a)
        good, truth = alike(actual, expected, rtol, expression not in SIGNLESS), None
        if not good.all() and e.is_floating_point() and e.dtype is not torch.float64:
            wide = {k: v.double() for k, v in operands.items()}
            truth = numpy_of(evaluated(torch, expression, wide)[i].to(e.dtype))
            good |= as_good(actual, expected, truth, rtol, expression not in SIGNLESS)
        if ON_DEVICE and e.is_floating_point():
            good |= (actual == 0) & (np.abs(expected) <= np.finfo(np.float32).tiny)
        free = excuse(expression, operands, good)
        excused = excused or bool((~good & free).any())
        for place in map(tuple, np.argwhere(~good & ~free)):
            of = [v[place[0]].tolist() if place and v.ndim else v.tolist() for v in operands.values()]
            double = "" if truth is None else f" (in double precision {truth[place]})"
            problems.append(f"of {of}: {actual[place]}, expected {expected[place]}{double}")
    return problems, excused


def as_good(actual, expected, truth, rtol: float, signs: bool) -> np.ndarray:
    """Elementwise: whether a result is what double precision says, or no further from it than twice torch's own."""
    with np.errstate(all="ignore"):
        nearer = np.abs(actual - truth) <= np.abs(expected - truth) * (2 if rtol else 1)
    return alike(actual, truth, rtol, signs) | (nearer & (actual != 0))


def excuse(expression: str, operands: dict, like: np.ndarray) -> np.ndarray:
    """Elementwise: whether DEVIATIONS says that a result may differ."""
    if expression not in DEVIATIONS:
        return np.zeros(like.shape, bool)
    with np.errstate(all="ignore"):
        rows = np.asarray(DEVIATIONS[expression][1](*map(numpy_of, operands.values())))
    return np.broadcast_to(rows.reshape(rows.shape + (1,) * (like.ndim - rows.ndim)), like.shape)


def check(expression: str, operands: dict, dtype) -> None:
    """Fails with the elements that differ and are not among DEVIATIONS."""
    problems, _ = disagreements(expression, operands, tolerance(expression, dtype))
    assert not problems, f"{expression} of {dtype}: {len(problems)} differ\n" + "\n".join(problems[:12])


def tolerance(expression: str, dtype) -> float:
    return 0.0 if expression in EXACT else max(RTOL[dtype], 1e-5) if loose(expression) else RTOL[dtype]


# --- pointwise -------------------------------------------------------------------------------------------------------


def operands_of(expression: str, dtype) -> dict:
    """All edge values for x; with y, all pairs of them."""
    values = edges(dtype, loose(expression))
    if not re.search(r"\by\b", expression):
        return {"x": values}
    return {"x": values.repeat_interleave(len(values)), "y": values.repeat(len(values))}


def of_three(expression: str, dtype) -> dict:
    """All triples as x, y and z."""
    return dict(zip("xyz", (column.contiguous() for column in triples(dtype).t()), strict=True))


def of_rows(expression: str, dtype) -> dict:
    """All triples as the rows of x."""
    return {"x": triples(dtype)}


def dtypes_of(expression: str):
    return FLOATS[:2] if "l.complex" in expression else FLOATS  # there is no complex dtype of half precision


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_pointwise(expression):
    for dtype in dtypes_of(expression):
        check(expression, operands_of(expression, dtype), dtype)


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_pointwise_of_many_and_of_one(expression):
    """The numbers do not depend on how many there are: kernels have ways of their own for few and for many."""
    for dtype in dtypes_of(expression):
        operands = operands_of(expression, dtype)
        count = len(operands["x"])
        few = evaluated(tg, expression, to_tg(operands))
        if "y[:1]" in expression or isinstance(few, Exception):
            continue
        times = -(-MANY // count)
        many = evaluated(tg, expression, to_tg({k: v.repeat(times) for k, v in operands.items()}))
        ones = [
            evaluated(tg, expression, to_tg({k: v[i] for k, v in operands.items()}))
            for i in range(0, count, 1 + count // 50)
        ]
        promoted = few[0].dtype is not ones[0][0].dtype  # an operand without dimensions counts for less
        for i, expected in enumerate(map(numpy_of, few)):
            found = numpy_of(many[i])[-count:]
            one = np.stack([numpy_of(each[i]) for each in ones])
            for actual, wanted in ((found, expected), (one, expected[:: 1 + count // 50])):
                scale = np.finfo(expected.dtype).eps if expected.dtype.kind == "f" else 0
                good = alike(actual, wanted, RTOL[dtype]) | (promoted and actual is one)
                with np.errstate(all="ignore"):  # where digits cancel, what is left of them may differ
                    good |= (np.abs(actual - wanted) <= 4 * scale) & (wanted != 0) if scale else False
                assert good.all(), f"{expression} of {dtype}: {actual[~good]}, of few {wanted[~good]}"


@pytest.mark.parametrize("expression", TERNARY)
def test_pointwise_of_three(expression):
    for dtype in FLOATS:
        check(expression, of_three(expression, dtype), dtype)


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_gradient_at_the_edges(expression):
    """In double precision; zeros of either sign are alike."""
    operands = operands_of(expression, torch.float64)
    found = _gradients(tg, expression, to_tg({k: v.requires_grad_() for k, v in operands.items()}))
    expected = _gradients(torch, expression, {k: v.requires_grad_() for k, v in operands.items()})
    assert isinstance(found, Exception) == isinstance(expected, Exception) or "is not implemented" in str(expected)
    if isinstance(expected, Exception) or loose(expression) or not expected:
        return
    _, allowed = GRADIENT_DEVIATIONS.get(expression, ("", lambda *values: np.zeros(values[0].shape, bool)))
    free = allowed(*map(numpy_of, operands.values()))
    for name, e, a in zip(operands, expected, found, strict=True):
        assert (e is None) == (a is None), f"gradient for {name}: {a}, expected {e}"
        if e is not None:
            good = alike(numpy_of(a), numpy_of(e), 1e-6, signs=False)
            wrong = np.flatnonzero(~good & ~free)
            at = [(i, numpy_of(a)[i], numpy_of(e)[i], [v[i].item() for v in operands.values()]) for i in wrong[:8]]
            assert not at, f"gradient for {name} (place, found, expected, operands): {at}"


@pytest.mark.parametrize("expression", [e for e in EXPRESSIONS if not loose(e) and not re.search(r"\by\b", e)])
def test_gradient_in_every_precision(expression):
    """Of few elements and of many, as in PyTorch's vector code.

    Its scalar code, which computes the last few elements of a tensor, gives other gradients of some activations at nan.
    """
    for dtype in dtypes_of(expression):
        few = operands_of(expression, dtype)
        count = len(few["x"])
        many = {k: v.repeat(-(-MANY // count)) for k, v in few.items()}
        theirs, wide = (
            _gradients(torch, expression, {k: v.to(d).requires_grad_() for k, v in many.items()})
            for d in (dtype, torch.float64)
        )
        if isinstance(theirs, Exception) or not theirs:
            continue
        _, allowed = GRADIENT_DEVIATIONS.get(expression, ("", lambda *values: np.zeros(values[0].shape, bool)))
        expected, truth = numpy_of(theirs[0])[:count], numpy_of(wide[0].to(dtype))[:count]
        for operands in (few, many):
            leaf = {k: v.clone().requires_grad_() for k, v in operands.items()}
            found = numpy_of(_gradients(tg, expression, to_tg(leaf))[0])[:count]
            rtol = 4 * max(RTOL[dtype], 1e-5)
            good = alike(found, expected, rtol, signs=False) | as_good(found, expected, truth, rtol, False)
            wrong = np.flatnonzero(~good & ~allowed(numpy_of(few["x"])))
            at = [(found[i], expected[i], few["x"][i].item()) for i in wrong[:8]]
            assert not at, f"gradient in {dtype} of {len(operands['x'])} (found, expected, operand): {at}"


def _gradients(library, expression: str, operands: dict):
    """The gradients of the sum of all results that have one, or the exception on the way."""
    results = evaluated(library, expression, operands)
    if isinstance(results, Exception):
        return results
    tracked = [r for r in results if r.requires_grad]
    try:
        ones = [library.ones_like(r) for r in tracked]
        return library.autograd.grad(tracked, list(operands.values()), ones, allow_unused=True) if tracked else []
    except Exception as error:
        return error


# --- along a dimension -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("expression", ALONG)
def test_along_a_dimension(expression):
    for dtype in FLOATS:
        check(expression, of_rows(expression, dtype), dtype)


@pytest.mark.parametrize(("expressions", "given"), [(EXPRESSIONS, operands_of), (TERNARY, of_three), (ALONG, of_rows)])
def test_expressions_compute_something(expressions, given):
    """An expression that is an error in both libraries would compare nothing."""
    for expression in expressions:
        for library, convert in ((torch, dict), (tg, to_tg)):
            value = evaluated(library, expression, convert(given(expression, torch.float64)))
            assert not isinstance(value, Exception), f"{expression}: {value!r}"


def test_deviations_are_still_there():
    """A deviation that has gone must leave the table, and its expression must be one that is tested."""
    if not (kernels := torch.backends.cpu.get_cpu_capability()).startswith("AVX"):
        pytest.skip(f"some are deviations of torch's kernels for AVX2 and later; here it runs those named {kernels}")
    gone = []
    for expression in DEVIATIONS:
        assert expression in {*EXPRESSIONS, *ALONG, *TERNARY}, expression
        given = of_three if expression in TERNARY else of_rows if expression in ALONG else operands_of
        cases = ((dtype, given(expression, dtype)) for dtype in FLOATS)
        if not any(disagreements(expression, operands, tolerance(expression, d))[1] for d, operands in cases):
            gone.append(expression)
    # Which polynomials show it depends on how the processor's own functions round: it is enough that one does.
    polynomials = [expression for expression, (reason, _) in DEVIATIONS.items() if reason == POLYNOMIAL]
    if not {*polynomials} <= {*gone}:
        gone = [expression for expression in gone if expression not in polynomials]
    assert not gone, f"these agree now: {gone}"


# --- integers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8), ids=plain_name)
def test_limits_of_integers(dtype):
    """Sums and products wrap around, and nothing else goes wrong at the ends of the range."""
    limits = torch.iinfo(dtype)
    numbers = [limits.min, limits.min + 1, -2, -1, 0, 1, 2, 3, 7, limits.max - 1, limits.max]
    values = torch.tensor([n for n in numbers if n >= limits.min], dtype=dtype)
    x, y = values.repeat_interleave(len(values)), values.repeat(len(values))
    wrong = []
    for expression in OF_INTEGERS:
        without_zero = any(sign in expression for sign in ("/ y", "% y", "div(", "fmod"))
        kept = (y != 0) & ~((x == limits.min) & (y == -1)) if without_zero else torch.ones_like(x, dtype=torch.bool)
        if "gcd" in expression or "lcm" in expression:  # of results that there are not, C leaves open what comes
            kept = (x.abs() < 10) & (y.abs() < 10) & (x != limits.min) & (y != limits.min)
        problems, _ = disagreements(expression, {"x": x[kept], "y": y[kept]}, RTOL[torch.float32])
        wrong += [f"{expression}: {p}" for p in problems[:3]]
    assert not wrong, "\n".join(wrong)


# --- empty -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(0,), (2, 0), (0, 3)], ids=str)
def test_nothing_in_nothing_out(shape):
    """Shapes, dtypes and errors where there are no elements at all, or none along a dimension.

    (PyTorch's FFT of an empty batch fails in MKL, and its batch norm does not look at the statistics of no channels.)
    """
    wrong = []
    for expression in (*EXPRESSIONS, *TERNARY, *ALONG):
        names = [name for name in "xyz" if re.search(rf"\b{name}\b", expression)]
        operands = dict.fromkeys(names, torch.empty(shape))
        problems, _ = disagreements(expression, operands, 0.0)
        wrong += [f"{expression}: {p}" for p in problems if "MKL" not in p and "new_zeros(3)" not in expression]
    assert not wrong, "\n".join(wrong[:20])


# --- drawn shapes ----------------------------------------------------------------------------------------------------

REDUCTIONS = (
    "sum", "mean", "prod", "nansum", "nanmean", "amax", "amin", "all", "any", "logsumexp", "count_nonzero", "norm",
)  # fmt: skip
SMALL = 1e-4 if ON_DEVICE else 1e-45  # GPUs multiply in single precision, where PyTorch's CPU has products of any size
NUMBERS = st.sampled_from([nan, inf, -inf, 0.0, -0.0, 1.0, -1.0, 0.5, SMALL, 3e4])


@st.composite
def reductions(draw):
    """A tensor of edge values, and dimensions to reduce."""
    shape = draw(st.lists(st.integers(0, 4), max_size=3).map(tuple))
    count = math.prod(shape)
    values = torch.tensor(draw(st.lists(NUMBERS, min_size=count, max_size=count)), dtype=torch.float32).reshape(shape)
    if draw(st.booleans()) and values.ndim > 1:
        values = values.transpose(0, 1)
    some = st.lists(st.integers(-len(shape), len(shape) - 1), max_size=len(shape), unique_by=lambda d: d % len(shape))
    dims = tuple(draw(some)) if shape else ()
    return values, dims, draw(st.booleans())


@hypothesis.given(reductions())
@hypothesis.settings(max_examples=150)
def test_reductions_of_drawn_shapes(case):
    values, dims, keepdim = case
    for name in REDUCTIONS:
        if name == "logsumexp" and not dims:
            continue  # where PyTorch's fails on some shapes
        keep = "" if name == "count_nonzero" else f", keepdim={keepdim}"
        call = f"x.{name}({dims}{keep})" if name != "norm" else f"l.linalg.vector_norm(x, 2, {dims}, {keepdim})"
        if name == "prod":
            call = f"x.prod({dims[0]}, {keepdim})" if dims else "x.prod()"
        _assert_same(call, values)


@hypothesis.given(reductions())
@hypothesis.settings(max_examples=150)
def test_scans_and_sorts_of_drawn_shapes(case):
    values, dims, _ = case
    dim = dims[0] if dims else 0
    for call in (
        "x.cumsum({})", "x.cumprod({})", "x.cummax({})", "x.logcumsumexp({})", "x.softmax({})", "x.log_softmax({})",
        "l.sort(x, dim={}, stable=True)", "l.argsort(x, dim={}, stable=True)", "x.argmax({})", "x.flip({})",
        "x.unique()", "x.nonzero()", "l.diff(x, dim={})",
    ):  # fmt: skip
        _assert_same(call.format(dim), values)


def _assert_same(call: str, values: torch.Tensor) -> None:
    """As in torch, or in double precision: shapes, dtypes, values (zeros of either sign), exceptions."""
    found, expected = evaluated(tg, call, {"x": to_tg(values)}), evaluated(torch, call, {"x": values})
    if isinstance(expected, Exception) or isinstance(found, Exception):
        assert type_name(found) == type_name(expected), (
            f"{call} of {values}: {found!r:.200}, expected {expected!r:.200}"
        )
        return
    for a, e in zip(found, expected, strict=True):
        assert a.shape == tuple(e.shape) and plain_name(a.dtype) == plain_name(e.dtype), f"{call} of {values}: {a}, {e}"
        good = alike(numpy_of(a), numpy_of(e), 1e-5, signs=False)
        assert good.all(), f"{call} of {values}: {a}, expected {e}"
