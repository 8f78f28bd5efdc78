"""`out=` of every public function that takes it: one set of rules, compared with torch's.

The functions are found by walking the namespaces; their arguments come from PyTorch's own test database, or from
CALLS where that has none. A function without either fails the test: none is left out but those in LEFT_OUT.
"""

import inspect
import itertools
import random
import warnings

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is the oracle of these tests, and its database gives the arguments")

import torch

import tensorgrad as tg
from tensorgrad.dispatch.templates import has_out
from tests.conformance import opdb
from tests.conformance.opdb_bridge import copied, leaves, named, numpy_of, to_tg

pytestmark = pytest.mark.filterwarnings("ignore")

SPACES = ("", "linalg", "fft", "special", "nn.functional", "Tensor")
x, square = torch.rand(3, 4, dtype=torch.float64), torch.rand(3, 3, dtype=torch.float64) + 3 * torch.eye(3).double()
CALLS = {  # arguments where the database has none
    "chain_matmul": (x, x.t(), x),
    "detach_copy": (x,),
    "fft.fftfreq": (5,),
    "fft.rfftfreq": (5,),
    "frobenius_norm": (x, (0, 1)),
    "hardshrink": (x,),
    "normal": (x, x),
    "nuclear_norm": (x,),
    "polygamma": (1, x),
    "rand": ((2, 3),),
    "randperm": (5,),
    "range": (0, 5),
    "relu": (x,),
    "select_copy": (x, 0, 1),
    "slice_copy": (x, 0, 1, 2),
    "slogdet": (square,),
    "special.gammainc": (x, x + 1),
    "special.gammaincc": (x, x + 1),
    "special.polygamma": (1, x),
    "split_copy": (x, 2),
    "spmm": (x, x.t()),
    "dsmm": (x, x.t()),
    "view_as_complex_copy": (torch.rand(3, 2),),
    "view_as_real_copy": (torch.rand(3, dtype=torch.complex64),),
    "where": (x > 0.5, x, -x),
}
LEFT_OUT = {  # why a function that takes `out=` is not tried
    "lstsq": "removed from PyTorch, and refuses every call here as there",
    "matrix_rank": "removed from PyTorch, and refuses every call here as there",
    "solve": "removed from PyTorch, and refuses every call here as there",
    "symeig": "removed from PyTorch, and refuses every call here as there",
}
SPARSE = {"hsmm", "hspmm", "saddmm", "sspaddmm"}  # take sparse tensors: tests/sparse/test_calls.py tries them
UNWARNED = {  # resized here with the warning that torch forgets for them (or warns of what it should not)
    "addbmm", "arange", "linalg.lu_factor", "lu", "narrow_copy", "nn.functional.linear", "nn.functional.logsigmoid",
}  # fmt: skip
RESIZED = {"split_copy"}  # resized here; torch wants the shape
OTHER_WORDS = {  # the same calls are refused, in other words
    "diag", "heaviside", "mean", "mvlgamma", "special.multigammaln",
}  # fmt: skip
OTHER_DTYPE = {  # dtypes that torch refuses, or takes, by mistake: another one than its rule says
    "bernoulli": "complex", "fft.ifft": "complex", "fft.ihfft": "complex", "normal": "complex",
    "range": ("bool", "complex"),
}  # fmt: skip
DTYPES = ("bool", "uint8", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64", "complex128")


def owner_of(library, name: str):
    for part in name.split("."):
        library = getattr(library, part, None)
    return library


def takes_out(function) -> bool:
    row = getattr(function, "op", None)
    if row is not None:
        return has_out(row)
    try:
        return "out" in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False


def functions() -> list[str]:
    """The dotted name of every public function that takes `out=`; of methods those that are not functions as well.

    Functions that torch does not have are left out: there is nothing to compare them with.
    """
    found = []
    for space in SPACES:
        owner = tg
        for part in filter(None, space.split(".")):
            owner = getattr(owner, part)
        for name in sorted(dir(owner)):
            function = getattr(owner, name, None)
            if name.startswith("_") or not callable(function) or not takes_out(function):
                continue
            if owner_of(torch, f"{space}.{name}".lstrip(".")) is None and not hasattr(torch.Tensor, name):
                continue
            if space != "Tensor":
                found.append(f"{space}.{name}".lstrip("."))
            elif not is_a_function_too(name, function):
                found.append(f"Tensor.{name}")
    return found


def is_a_function_too(name: str, method) -> bool:
    """Whether a method is one of the functions, which are tried: behind its guard it is the same."""
    same = (getattr(tg, name, None), getattr(tg.nn.functional, name, None))
    return any(f is not None and inspect.unwrap(f) is inspect.unwrap(method) for f in same) or any(
        getattr(f, "op", 0) is getattr(method, "op", 1) for f in same
    )


RECORDS: dict = {}
for _record in opdb.records():
    for _name in (_record.name, *(a.name for a in _record.aliases)):
        RECORDS.setdefault(_name, _record)


def call_of(name: str):
    """(torch's function or None, ours, arguments, keywords) of a call that works in torch; None if there is none."""
    theirs, ours = owner_of(torch, name), owner_of(tg, name)
    if name in CALLS:
        return theirs, ours, CALLS[name], {}
    record = RECORDS.get(name)
    if record is None:
        return None
    for dtype in (torch.float64, torch.int64, torch.complex128):
        if dtype not in record.dtypes:
            continue
        for seed in (torch.manual_seed, np.random.seed, random.seed):
            seed(0)
        for sample in itertools.islice(record.sample_inputs("cpu", dtype, requires_grad=False), 20):
            arguments = (sample.input, *sample.args)
            keywords = {k: v for k, v in sample.kwargs.items() if not isinstance(v, torch.Generator)}
            for function in (theirs, getattr(torch.Tensor, name, None)):
                try:
                    made = function(*copied(arguments), **copied(keywords))
                except Exception:
                    continue
                if made is not None and all(isinstance(v, torch.Tensor) for v in leaves(made)) and leaves(made):
                    return theirs, ours, arguments, keywords
    return None


class Outcome:
    """What a call did: the exception or the tensors, and whether it warned of a new size."""

    def __init__(self, function, arguments, keywords):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                made = function(*arguments, **keywords)
                self.error, self.tensors = None, leaves(keywords["out"] if made is None else made)
            except Exception as error:
                self.error, self.tensors = error, []
        self.resized = any("was resized since it had shape" in str(w.message) for w in caught)
        self.refused = self.error is not None and "automatic differentiation" in str(self.error)


class Case:
    """One function's call, with any `out=` and any tensor that requires grad."""

    def __init__(self, name: str):
        self.name = name
        found = call_of(name)
        assert found is not None, f"{name} takes out=, but there are no arguments to try it with: add it to CALLS"
        self.torch_function, self.function, self.arguments, self.keywords = found
        plain = Outcome(self.torch_function, copied(self.arguments), copied(self.keywords))
        assert plain.error is None, plain.error
        self.results = plain.tensors
        self.several = not isinstance(
            self.torch_function(*copied(self.arguments), **copied(self.keywords)), torch.Tensor
        )
        self.inputs = [
            i
            for i, t in enumerate(leaves((self.arguments, self.keywords)))
            if t.dtype.is_floating_point or t.is_complex()
        ]

    def outcome(self, library, shape=None, dtype=None, requires_grad=None, grad=True, with_out=True, place=None):
        """Calls it; `requires_grad` is the number of an input, or "out"; `place` that of the only result with another
        dtype."""
        arguments, keywords = copied((self.arguments, self.keywords))
        out = [
            torch.zeros(r.shape if shape is None else shape, dtype=dtype if dtype and place in (None, i) else r.dtype)
            for i, r in enumerate(self.results)
        ]
        if library is tg:
            arguments, keywords, out = to_tg(arguments), to_tg(keywords), [to_tg(t) for t in out]
        if requires_grad == "out":
            for t in out:
                if t.is_floating_point():
                    t.requires_grad_()
        elif requires_grad is not None:
            leaves((arguments, keywords))[requires_grad].requires_grad_()
        if with_out:
            keywords["out"] = tuple(out) if self.several else out[0]
        with library.set_grad_enabled(grad):
            (torch if library is torch else tg).manual_seed(0)
            return Outcome(self.torch_function if library is torch else self.function, arguments, keywords)

    def without_out(self) -> bool:
        """Whether torch's function has no `out=` (ours comes with the row)."""
        return isinstance(self.outcome(torch).error, TypeError)


FUNCTIONS = functions()


@pytest.mark.parametrize("name", [n for n in FUNCTIONS if n not in LEFT_OUT and n not in SPARSE])
def test_out(name):
    case = Case(name)
    nowhere = case.without_out()
    problems = []
    exact = case.outcome(tg, with_out=False)
    for shape in (None, (0,), (7,)):
        found, expected = case.outcome(tg, shape), case.outcome(torch, shape)
        if nowhere:
            continue
        if expected.error is not None:
            if found.error is None and name not in RESIZED:
                problems.append(f"out= of shape {shape}: {expected.error!r} was expected")
            continue
        if found.error is not None:
            problems.append(f"out= of shape {shape}: {found.error!r}")
            continue
        for a, e, t in zip(found.tensors, exact.tensors, expected.tensors, strict=True):
            same = name == "empty" or np.array_equal(numpy_of(a), numpy_of(e), equal_nan=True)
            if not same or a.shape != t.shape:
                problems.append(f"out= of shape {shape}: {a}, without {e}, torch {t}")
        if found.resized != expected.resized and name not in UNWARNED:
            problems.append(f"out= of shape {shape}: warned {found.resized}, torch {expected.resized}")

    for which in (*case.inputs, "out"):
        plain = case.outcome(tg, requires_grad=which, with_out=False) if which != "out" else None
        found, expected = case.outcome(tg, requires_grad=which), case.outcome(torch, requires_grad=which)
        if which == "out" and not any(t.is_floating_point() for t in case.results):
            continue
        differentiable = which == "out" or any(t.requires_grad for t in plain.tensors)
        if found.refused != (differentiable or (expected.refused and not nowhere)):
            problems.append(f"{which} requires grad: {found.error!r}, torch {expected.error!r}")
        quiet = case.outcome(tg, requires_grad=which, grad=False)
        if (quiet.error is None) != (exact.error is None):
            problems.append(f"{which} requires grad under no_grad: {quiet.error!r}")
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("name", [n for n in FUNCTIONS if n not in LEFT_OUT and n not in SPARSE])
def test_the_dtype_of_out(name):
    """Each result in turn stored in a tensor of each dtype: taken or refused, with torch's error."""
    case = Case(name)
    if case.without_out():
        return
    problems = []
    for place, dtype in itertools.product(range(len(case.results)), DTYPES):
        if dtype.startswith(OTHER_DTYPE.get(name, "none")):
            continue
        found, expected = (case.outcome(lib, dtype=getattr(torch, dtype), place=place) for lib in (tg, torch))
        told = [f"{type(o.error).__name__}: {o.error}" for o in (found, expected)]
        if name in OTHER_WORDS:
            told = [text.partition(":")[0] for text in told]
        if told[0] != told[1]:
            problems.append(f"result {place} in {dtype}: {told[0]}\n    expected {told[1]}")
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("given", (None, *DTYPES))
@pytest.mark.parametrize("name", ["sum", "prod", "mean", "nansum", "nanmean", "cumsum", "cumprod"])
def test_reductions_are_computed_in_the_dtype_of_out(name, given):
    """With every `dtype=` beside every dtype of `out`, from numbers of every dtype."""

    def outcome(lib, source, into):
        x = lib.tensor([[1.75, 2.0, 0.5], [0.0, 3.0, 1.25]]).to(getattr(lib, source))
        out = lib.zeros((2, 3) if name.startswith("cum") else 2, dtype=getattr(lib, into))
        try:
            return getattr(lib, name)(x, 1, **({"dtype": getattr(lib, given)} if given else {}), out=out).tolist()
        except (RuntimeError, TypeError) as error:
            return f"{type(error).__name__}: {error}"

    for source, into in itertools.product(DTYPES, DTYPES):
        found, expected = outcome(tg, source, into), outcome(torch, source, into)
        if isinstance(expected, list) and isinstance(found, list):
            np.testing.assert_allclose(np.array(found), np.array(expected), rtol=2e-2)
        elif name in ("mean", "nanmean", "nansum"):  # refused one after the other in another order
            assert isinstance(found, str) and isinstance(expected, str), (source, into, found, expected)
        else:
            assert found == expected, (source, into)


def test_what_is_left_out_is_still_there():
    assert set(LEFT_OUT) <= set(FUNCTIONS), set(LEFT_OUT) - set(FUNCTIONS)
    for name in LEFT_OUT:
        with pytest.raises(RuntimeError, match="deprecated"):
            owner_of(tg, name)(tg.ones(2, 2), tg.ones(2, 2))
    assert not {n for n in CALLS if named(n) is None}


def test_nothing_is_written_when_out_is_refused():
    w, out = tg.ones(2, requires_grad=True), tg.zeros(2)
    mean = tg.zeros(2)
    for call in (
        lambda: tg.softmax(w, 0, out=out),
        lambda: tg.exp(w, out=out),
        lambda: tg.native_batch_norm(tg.ones(3, 2), w, None, mean, None, True, 0.1, 1e-5, out=(out, out, out)),
    ):
        with pytest.raises(RuntimeError, match="support automatic differentiation"):
            call()
    assert out.tolist() == mean.tolist() == [0.0, 0.0]


UNARY = (
    "abs", "angle", "ceil", "conj_physical", "exp", "floor", "frac", "isneginf", "isposinf", "nan_to_num", "neg",
    "round", "sgn", "sign", "signbit", "sin", "square", "trunc",
)  # fmt: skip
BINARY = ("add", "atan2", "div", "eq", "float_power", "heaviside", "maximum", "mul")
SOME_DTYPES = ("bool", "uint8", "int32", "int64", "bfloat16", "float32", "float64", "complex64", "complex128")


@pytest.mark.parametrize("name", UNARY + BINARY)
def test_dtypes_of_out(name):
    """Which dtypes a result may be stored in, as PyTorch says it."""

    def outcome(lib, dtype, into):
        x = lib.ones(3, dtype=getattr(lib, dtype))
        try:
            result = getattr(lib, name)(*(x,) * (1 + (name in BINARY)), out=lib.zeros(3, dtype=getattr(lib, into)))
        except NotImplementedError:
            return "refused"
        except RuntimeError as error:
            return str(error)
        return result.tolist()

    for dtype, into in itertools.product(SOME_DTYPES, SOME_DTYPES):
        if name == "heaviside" and "complex" in into:  # torch has another message there
            continue
        found, expected = outcome(tg, dtype, into), outcome(torch, dtype, into)
        if isinstance(expected, list) and isinstance(found, list):
            np.testing.assert_allclose(np.array(found), np.array(expected), rtol=1e-2)
        else:  # a dtype that the op does not take may be refused before, and without a kernel for it
            assert found == expected or "refused" in (found, expected), (dtype, into)
