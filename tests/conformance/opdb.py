"""Runs the records of PyTorch's own test database (its wheel carries it) against tensorgrad, with torch as the oracle.

Each `check_*` returns a list of differences; empty means that the record agrees. From the shell, to look at one op,
at all of them, or at how many have derivatives that agree:

    python -m tests.conformance.opdb add nn.functional.conv2d
    python -m tests.conformance.opdb
    python -m tests.conformance.opdb --summary

The tensors of tensorgrad are on the device that the environment's DEVICE names (`tests/conformance/opdb_bridge.py`).
"""

from __future__ import annotations

import copy
import itertools
import random
import sys
import warnings

import numpy as np
import torch
import torch.testing._internal.common_utils

import tensorgrad as tg
from tests.conformance.opdb_bridge import (
    HOME,
    close,
    complete,
    copied,
    differences,
    leaves,
    named,
    numpy_of,
    plain_name,
    share_memory,
    shown,
    to_tg,
    translate,
    wait,
    with_gaps,
)

# For every sample the database looks through the whole stack for the unittest that asked for it, and sets a seed, which
# torch puts down for each kind of device that is absent, with the stack that it came from: more work than the ops.
# (The function's code is replaced, as modules of the database may have imported it already.)
torch.testing._internal.common_utils.extract_test_fn.__code__ = (lambda: None).__code__
for absent in (torch.cuda, torch.xpu, torch.mtia):
    if not absent.is_available():
        absent.manual_seed_all = lambda seed: None

MAX_SAMPLES = 20  # of each record and dtype: spread over those that the database makes
MAX_MADE = 120  # of which the first so many are looked at
MAX_ELEMENTS = 4000  # in the inputs of a sample that is differentiated
MAX_ELEMENTS_TWICE = 500  # and of one that is differentiated twice

DTYPES = (
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8, torch.bool,
    torch.complex64, torch.complex128, *(() if HOME else (torch.complex32,)),  # which GPUs refuse
)  # fmt: skip
VIEWS = {  # whose results have PyTorch's strides
    "T", "H", "mT", "mH", "adjoint", "t", "transpose", "swapaxes", "swapdims", "permute", "movedim", "moveaxis",
    "expand", "expand_as", "broadcast_to", "broadcast_tensors", "select", "narrow", "unfold", "diagonal",
    "linalg.diagonal", "squeeze", "squeeze.multiple", "unsqueeze", "view", "view_as", "reshape", "reshape_as",
    "flatten", "unflatten", "ravel", "as_strided", "split", "split_with_sizes", "chunk", "tensor_split", "hsplit",
    "vsplit", "dsplit", "unbind", "unsafe_split", "unsafe_chunk", "atleast_1d", "atleast_2d", "atleast_3d", "meshgrid",
    "real", "imag", "view_as_real", "view_as_complex", "contiguous", "detach", "positive", "block_diag", "__getitem__",
    "resize_", "resize_as_", "empty_strided", "new_empty_strided", "empty_permuted", "clone", "zeros_like",
    "ones_like", "full_like", "empty_like", "rand_like", "randn_like",
}  # fmt: skip
VALUES_UNDEFINED = {"empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted"}
# Eigenvectors and singular vectors are free in sign and phase; the database's own function removes that.
PHASES = {
    "linalg.eig", "linalg.eigh", "linalg.svd", "svd", "linalg.qr", "qr", "geqrf", "svd_lowrank", "pca_lowrank",
}  # fmt: skip
# Their second derivatives go through several decompositions of nearly dependent columns: when the input changes by one
# part in 10¹⁵, torch's own change by up to 5e-7.
ILL_CONDITIONED = {"svd_lowrank": 2e-6, "pca_lowrank": 2e-6}
# Among equal elements, which index is returned is open. Position of `dim` among the arguments.
TIES = {"kthvalue": 2, "topk": 2, "mode": 1, "sort": 1, "argsort": 1}


def records():
    """All records of the database, in its order."""
    from torch.testing._internal.common_methods_invocations import op_db

    return op_db


def record_name(record) -> str:
    """The record's name with its variant: `norm.nuc`."""
    return record.name + (f".{record.variant_test_name}" if record.variant_test_name else "")


def resolve(record):
    """The function in tensorgrad that a record stands for; None if there is none."""
    translated = translate(record.op)
    if translated is not None:
        return translated if complete(translated) else None
    return SPELLED.get(record.name) or named(record.name) or named(_exported_as(record.op))


def _exported_as(function) -> str:
    """The name of a compiled function in `torch` ("" if it is none of these): some records have another."""
    owner, _, name = getattr(function, "__qualname__", "").rpartition(".")
    return name if owner == "_VariableFunctionsClass" else ""


def _sliced(x, dim=0, start=None, end=None, step=1):
    return x[(slice(None),) * (dim % x.ndim) + (slice(start, end, step),)]


SPELLED = {"slice": _sliced}  # what has no name in PyTorch, only a spelling


# --- calls ---------------------------------------------------------------------------------------------------------


class Call:
    """One sample of a record as a call in both libraries, each time on fresh copies and from the same seed."""

    def __init__(self, record, sample):
        self.record, self.function, self.torch_function = record, resolve(record), record.op
        self.inputs = (sample.input, *sample.args)
        self.kwargs = {k: v for k, v in sample.kwargs.items() if not isinstance(v, torch.Generator)}
        self.process = sample.output_process_fn_grad
        self.broadcasts = getattr(sample, "broadcasts_input", False)
        self.random = False  # whether it draws random numbers, which are other ones on a GPU

    def torch(self, arguments=None, function=None, **extra):
        """Torch's result, of fresh inputs or of given ones as (inputs, kwargs)."""
        inputs, kwargs = arguments or copied((self.inputs, self.kwargs))
        torch.manual_seed(0)
        return (function or self.torch_function)(*inputs, **kwargs, **extra)

    def ours(self, arguments=None, function=None, **extra):
        """tensorgrad's result."""
        inputs, kwargs = arguments or to_tg((self.inputs, self.kwargs))
        tg.manual_seed(0)
        before = tg.cuda.get_rng_state() if HOME else None
        result = (function or self.function)(*inputs, **kwargs, **extra)
        self.random |= before is not None and not tg.equal(before, tg.cuda.get_rng_state())
        return result

    def processed(self, expected, actual):
        """Both results through the database's function that picks what is to be compared."""
        ours = translate(self.process)
        return (self.process(expected), ours(actual)) if ours else (expected, actual)

    def widened(self):
        """The same call in double precision; None where it has no operand of a lower one."""
        wider = dict.fromkeys((torch.float32, torch.float16, torch.bfloat16), torch.float64)
        wider[torch.complex64] = torch.complex128
        if not any(t.dtype in wider for t in leaves((self.inputs, self.kwargs))):
            return None

        def widen(value):
            if isinstance(value, tuple | list):
                return [widen(v) for v in value]
            return value.to(wider[value.dtype]) if getattr(value, "dtype", None) in wider else value

        wide = copy.copy(self)
        wide.inputs, wide.kwargs = tuple(map(widen, self.inputs)), {k: widen(v) for k, v in self.kwargs.items()}
        return wide

    def elements(self) -> int:
        """The number of elements of all inputs."""
        return sum(t.numel() for t in leaves((self.inputs, self.kwargs)))

    def __str__(self):
        return ", ".join([*(shown(v) for v in self.inputs), *(f"{k}={shown(v)}" for k, v in self.kwargs.items())])


_made: dict = {}  # the samples of one record, by dtype and whether they require grad


def _samples(record, dtype, requires_grad):
    if _made.get("record") is not record:
        _made.clear()
        _made["record"] = record
    if (dtype, requires_grad) not in _made:
        for seed in (torch.manual_seed, np.random.seed, random.seed):
            seed(0)
        made = record.sample_inputs("cpu", dtype, requires_grad=requires_grad)
        different = {}
        for call in (Call(record, sample) for sample in itertools.islice(made, MAX_MADE)):
            different.setdefault(str(call), call)
        _made[dtype, requires_grad] = list(different.values())
    return _made[dtype, requires_grad]


def calls(record, dtype, requires_grad=False, limit=MAX_SAMPLES, elements=None):
    """Samples of a dtype as calls: all that differ in more than their values, evenly thinned to a limit."""
    found = _samples(record, dtype, requires_grad)
    if elements is not None:
        found = [c for c in found if c.elements() <= elements] or sorted(found, key=Call.elements)[:1]
    return [found[i * len(found) // limit] for i in range(limit)] if len(found) > limit else found


def _run(call: Call, run, label: str) -> list[str]:
    """Runs one comparison; an exception becomes a difference."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return [f"{d}   ({label}: {call})" for d in run(call)]
        except Exception as error:
            return [f"{type(error).__name__}: {str(error)[:200]}   ({label}: {call})"]


def _run_all(chosen, run, label: str) -> list[str]:
    return [problem for call in chosen for problem in _run(call, run, label)]


# --- the checks ----------------------------------------------------------------------------------------------------


def compare(call, expected, actual, what: str, strides=False) -> list[str]:
    """`differences`, with what a record leaves open taken out."""
    name = call.record.name
    if call.random:
        return [d for d in differences(expected, actual, what) if "values differ" not in d]
    if name in VALUES_UNDEFINED and isinstance(actual, tg.Tensor) and actual.shape == tuple(expected.shape):
        values = to_tg(expected.detach().contiguous())  # elements of the result may share memory
        actual._array[...] = values._array
    if name in TIES and not call.kwargs.get("stable"):
        expected, actual = _pointed_at(call, expected), _pointed_at(call, actual)
    if name in PHASES:
        expected, actual = call.processed(expected, actual)
    problems = differences(expected, actual, what, strides)
    if problems and all("values differ" in p for p in problems) and not _worse(call, expected, actual):
        return []
    return problems


def _pointed_at(call, results):
    """The results with indices replaced by the input's values there."""
    source, *rest = call.inputs
    source = source if isinstance(leaves(results)[0], torch.Tensor) else to_tg(source)
    position = TIES[call.record.name]
    dim = rest[position - 1] if len(rest) >= position else call.kwargs.get("dim", -1)
    *others, indices = leaves(results)
    if "int64" not in str(indices.dtype) or not source.ndim:
        return results
    narrow = indices.ndim < source.ndim
    return [*others, source.gather(dim, indices.unsqueeze(dim) if narrow else indices)]


def _worse(call, expected, actual) -> bool:
    """Whether single precision is further from the truth (torch in double precision) than torch's own is.

    Near poles and in long sums torch's result may be off by more than the tolerance, and so may another one be.
    """
    wide = call.widened()
    if wide is None:
        return True
    truth = wide.torch()
    if call.record.name in PHASES:
        truth = call.process(truth)
    return _further_off(leaves(truth), leaves(expected), leaves(actual))


def _further_off(truth, expected, actual, whole=False) -> bool:
    """Whether a result is off by more than the tolerance and twice torch's own error there (`whole`: anywhere).

    Gradients sum what flows together, so their errors go with the largest elements: they are measured as a whole.
    """
    for t, e, a in zip(truth, expected, actual, strict=False):
        if t.shape != e.shape:
            return True
        true, theirs, mine = numpy_of(t.to(e.dtype)), numpy_of(e), numpy_of(a)
        with np.errstate(all="ignore"):
            slack = 2 * np.abs(theirs - true)
            if whole:
                slack = np.max(slack, initial=0) + 1e-5 * np.max(np.abs(true), initial=0)
        if not close(mine, true, plain_name(e.dtype), slack):
            return True
    return False


def check_forward(record, dtype, strides=False, limit=MAX_SAMPLES) -> list[str]:
    """Values, shapes and dtypes of the results, and whose memory they are; inputs are left as torch leaves them."""

    def run(call):
        theirs, mine = copied((call.inputs, call.kwargs)), to_tg((call.inputs, call.kwargs))
        expected, result = call.torch(theirs), call.ours(mine)
        problems = _sharing(expected, theirs, result, mine)
        if not call.random:
            problems += differences(leaves(theirs), leaves(mine), "input afterwards")
        return problems + compare(call, expected, result, "result", strides)

    return _run_all(calls(record, dtype, limit=limit), run, f"forward {dtype}")


def _sharing(expected, theirs, result, mine) -> list[str]:
    """Views must be views, and everything else must not be."""
    theirs, mine = leaves(theirs), leaves(mine)
    for e, r in zip(leaves(expected), leaves(result), strict=False):
        if not e.numel():
            continue
        there = [e.untyped_storage().data_ptr() == t.untyped_storage().data_ptr() for t in theirs if not t.is_conj()]
        here = [_shares(r, t) for t in mine]
        if any(there) != any(here):
            return [f"result: {'shares' if any(here) else 'does not share'} memory with an input, unlike torch's"]
    return []


def _shares(a, b) -> bool:
    """Whether two tensors of tensorgrad share memory."""
    same_device = a._array.__class__ is b._array.__class__
    return a._storage is b._storage or (same_device and share_memory(a._array, b._array))


def _weights(results):
    """Fixed gradients for the outputs that require grad."""
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(r.shape, generator=generator, dtype=torch.float64).to(r.dtype) for r in results]


def _gradients(call, order: int, functions=(None, None)):
    """Gradients (or second gradients) in both libraries, as two lists."""
    theirs, mine = copied((call.inputs, call.kwargs)), to_tg((call.inputs, call.kwargs))
    wanted, our_wanted = ([t for t in leaves(side) if t.requires_grad] for side in (theirs, mine))
    expected, actual = call.processed(call.torch(theirs, functions[0]), call.ours(mine, functions[1]))
    results, ours = ([r for r in leaves(value) if r.requires_grad] for value in (expected, actual))
    if len(results) != len(ours):  # an empty result may count or not
        results, ours = ([r for r in side if r.numel()] for side in (results, ours))
    if len(results) != len(ours):
        raise AssertionError(f"{len(ours)} results require grad, expected {len(results)}")
    if not results:
        return [], []
    weights = _weights(results)
    options = {"create_graph": order > 1, "allow_unused": True}
    first = torch.autograd.grad(results, wanted, weights, **options)
    our_first = tg.autograd.grad(ours, our_wanted, to_tg(weights), **options)
    if order == 1:
        return list(first), list(our_first)
    pairs = [(f, m) for f, m in zip(first, our_first, strict=True) if f is not None and f.requires_grad]
    if not pairs:
        return [], []
    again = _weights([f for f, _ in pairs])
    try:
        second = torch.autograd.grad([f for f, _ in pairs], wanted, again, allow_unused=True)
    except RuntimeError:  # torch has no second derivative there
        return [], []
    tracked = [(m, to_tg(w)) for (_, m), w in zip(pairs, again, strict=True) if m is not None and m.requires_grad]
    if not tracked:  # constant here: right where torch's second derivatives are all zero
        return list(second), [None] * len(second)
    ours_second = tg.autograd.grad([m for m, _ in tracked], our_wanted, [w for _, w in tracked], allow_unused=True)
    return list(second), list(ours_second)


def _compare_gradients(call, order: int, functions=(None, None)) -> list[str]:
    expected, actual = _gradients(call, order, functions)
    if call.random:
        return []
    problems = []
    for i, (e, a) in enumerate(zip(expected, actual, strict=True)):
        what = f"{'second ' if order > 1 else ''}gradient {i}"
        if e is None or a is None:
            zero = e if a is None else a
            if zero is not None and not close(numpy_of(zero), np.zeros(()), plain_name(zero.dtype)):
                problems.append(f"{what}: {a!r:.60}, expected {e!r:.60}")
        elif not e.is_sparse:
            found = differences(e, a, what)
            slack = ILL_CONDITIONED.get(call.record.name)
            within = found and slack and close(numpy_of(a), numpy_of(e), plain_name(e.dtype), slack)
            problems += [] if within else found
    if problems and all("values differ" in p for p in problems) and (wide := call.widened()):
        truth, _ = _gradients(wide, order, functions)
        lists = ([g for g in side if g is not None] for side in (truth, expected, actual))
        return problems if _further_off(*lists, whole=True) else []
    return problems


def check_gradient(record, dtype, order: int = 1, limit=MAX_SAMPLES) -> list[str]:
    """First (`order=1`) or second derivatives."""
    chosen = calls(record, dtype, True, limit, MAX_ELEMENTS if order == 1 else MAX_ELEMENTS_TWICE)
    return _run_all(chosen, lambda call: _compare_gradients(call, order), f"gradient {order} {dtype}")


def check_noncontiguous(record, dtype, strides=False) -> list[str]:
    """The same results, or errors, from inputs with gaps between their elements."""

    def run(call):
        inputs, kwargs = [with_gaps(v) for v in call.inputs], call.kwargs
        try:
            expected = call.torch(copied((inputs, kwargs)))
        except Exception as error:  # views of what has gaps may be impossible
            return _same_error(error, lambda: call.ours(to_tg((inputs, kwargs))))
        return compare(call, expected, call.ours(to_tg((inputs, kwargs))), "result", strides)

    return _run_all(calls(record, dtype), run, "noncontiguous")


def check_meta(record, dtype) -> list[str]:
    """Shapes and dtypes on the meta device, or an error where torch needs values as well."""

    def run(call):
        try:
            actual = call.ours(to_tg((call.inputs, call.kwargs), "meta"))
        except Exception:
            try:
                call.torch(copied((call.inputs, call.kwargs), "meta"))
            except Exception:
                return []
            raise
        where = "meta" if "device" in call.kwargs or leaves((call.inputs, call.kwargs)) else "cpu"
        return _meta_differences(leaves(call.torch()), leaves(actual), where)

    return _run_all(calls(record, dtype), run, "meta")


def _meta_differences(expected, actual, where: str) -> list[str]:
    if len(expected) != len(actual):
        return [f"{len(actual)} results, expected {len(expected)}"]
    return [
        f"meta: {a.device} {shown(a)}, expected {shown(e)}"
        for e, a in zip(expected, actual, strict=True)
        if shown(e) != shown(a) or a.device.type != where
    ]


def check_method(record, dtype) -> list[str]:
    """The method gives what the function gives."""
    if record.method_variant is None:
        return []
    method = translate(record.method_variant) or getattr(tg.Tensor, record.name, None)
    if method is None:
        return [f"Tensor.{record.name} is missing"]

    def run(call):
        if not isinstance(call.inputs[0], torch.Tensor):
            return []
        return compare(call, call.torch(function=record.method_variant), call.ours(function=method), "method")

    return _run_all(calls(record, dtype, limit=3), run, "method")


def _same_error(error, ours) -> list[str]:
    """A difference unless our call raises torch's type of exception."""
    allowed = (type(error), RuntimeError) if isinstance(error, NotImplementedError) else (type(error),)  # its subclass
    try:
        ours()
        wait()
    except allowed:
        return []
    except Exception as other:
        return [f"{type(other).__name__}: {other!s:.120}, expected {type(error).__name__}: {error}"]
    return [f"no error, expected {type(error).__name__}: {error}"]


def check_inplace(record, dtype) -> list[str]:
    """The in-place form: same tensor, same values, same gradients; a failed write changes nothing."""
    variant = record.inplace_variant
    if variant is None:
        return []
    method = translate(variant) or getattr(tg.Tensor, variant.__name__, None) or named(variant.__name__)
    if method is None:
        return [f"Tensor.{variant.__name__} is missing"]

    def run(call):
        if call.broadcasts or not isinstance(call.inputs[0], torch.Tensor):
            return []
        mine = to_tg((call.inputs, call.kwargs))
        try:
            expected = call.torch(function=variant)
        except Exception as error:
            problems = _same_error(error, lambda: call.ours(mine, method))
            return problems or differences(call.inputs[0], mine[0][0], "input after the error")
        result = call.ours(mine, method)
        problems = [] if result is mine[0][0] else ["in place: another tensor was returned"]
        return problems + compare(call, expected, result, "in place")

    def gradients(call):
        if call.broadcasts or not isinstance(call.inputs[0], torch.Tensor):
            return []
        functions = [lambda x, *args, f=f, **kwargs: f(x.clone(), *args, **kwargs) for f in (variant, method)]
        try:
            call.torch(function=functions[0])
        except Exception as error:
            return _same_error(error, lambda: call.ours(function=functions[1]))
        return _compare_gradients(call, 1, functions)

    problems = _run_all(calls(record, dtype), run, "in place")
    backward = record.supported_backward_dtypes("cpu")
    wide = next((d for d in (torch.float64, torch.complex128) if d in backward), None)
    if record.supports_inplace_autograd and wide and not problems:
        problems += _run_all(calls(record, wide, True, 4, MAX_ELEMENTS), gradients, "in-place gradient")
    return problems


def _empty(dtype):
    return tg.empty(0, dtype=to_tg(dtype), device=HOME)


def check_out(record, dtype) -> list[str]:
    """`out=` receives the results, resized where its shape is another, and refuses what it cannot hold."""
    if not record.supports_out:
        return []

    def run(call):
        expected = call.torch()
        if isinstance(expected, torch.Tensor):
            like, small = tg.empty_like(to_tg(expected)), _empty(expected.dtype)
            problems = []
            for target in (like, small):
                result = call.ours(out=target)
                problems += [] if result is target else ["out=: another tensor was returned"]
                problems += compare(call, expected, target, "out=")
            return problems + other_dtype(call, expected, torch.int64) + other_dtype(call, expected, torch.float64)
        if not leaves(expected) or any(isinstance(e, tuple | list) for e in expected):  # no op writes into a list
            return []
        targets = tuple(_empty(e.dtype) for e in expected)
        try:
            call.torch(out=tuple(torch.empty(0, dtype=e.dtype) for e in expected))
        except Exception as error:
            return _same_error(error, lambda: call.ours(out=targets))
        call.ours(out=targets)
        return compare(call, tuple(expected), targets, "out=")

    def other_dtype(call, expected, other):
        """Where torch casts to the dtype of `out`, so must we; what has no safe cast must be refused as there.

        (Many of PyTorch's kernels refuse casts that would be safe; here all ops allow them.)
        """
        target, ours = torch.empty(0, dtype=other), _empty(other)
        try:
            call.torch(out=target)
        except Exception as error:
            return [] if torch.can_cast(expected.dtype, other) else _same_error(error, lambda: call.ours(out=ours))
        call.ours(out=ours)
        return compare(call, target.to(expected.dtype), ours.to(to_tg(expected.dtype)), f"out= of {other}")

    return _run_all(calls(record, dtype, limit=4), run, "out=")


def check_errors(record) -> list[str]:
    """The record's bad inputs raise PyTorch's exception type."""
    if record.error_inputs_func is None:
        return []
    problems = []
    for bad in record.error_inputs("cpu"):
        call = Call(record, bad.sample_input)
        label = f"{bad.error_type.__name__} ({bad.error_regex})"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                call.ours()
                wait()
            except bad.error_type:
                continue
            except Exception as error:
                problems.append(f"error: {type(error).__name__}: {error!s:.120}, expected {label}   ({call})")
            else:
                if _refused_by_torch(call):
                    problems.append(f"error: none, expected {label}   ({call})")
    return problems


def _refused_by_torch(call) -> bool:
    """Whether torch itself raises: some records list calls that are errors on other devices only."""
    try:
        call.torch()
    except Exception:
        return True
    return False


def check_gradients(record) -> list[str]:
    """First and second derivatives, real and complex; nothing to differ where the record has none."""
    backward = record.supported_backward_dtypes("cpu") if record.supports_autograd else set()
    problems = check_gradient(record, torch.float32) if torch.float32 in backward else []
    for dtype in (torch.float64, torch.complex128):
        if dtype in backward:
            problems += check_gradient(record, dtype)
            if record.supports_gradgrad:
                problems += check_gradient(record, dtype, 2)
    return problems


def check_all(record) -> list[str]:
    """Every check that the record's declared abilities allow."""
    supported = record.supported_dtypes("cpu")
    dtypes = [d for d in DTYPES if d in supported]
    strides = record.name in VIEWS
    problems = []
    checks = (check_method, check_inplace, check_out, *(() if HOME else (check_meta,)))
    for check in checks if dtypes else ():
        problems += check(record, dtypes[0])
    problems += check_noncontiguous(record, dtypes[0], strides) if dtypes else []
    for dtype in dtypes:
        problems += check_forward(record, dtype, strides)
    return problems + check_gradients(record) + check_errors(record)


def differentiable(record) -> bool:
    """Whether the database says that the record has derivatives."""
    backward = record.supported_backward_dtypes("cpu") if record.supports_autograd else set()
    return bool(backward & {torch.float64, torch.complex128})


def main(arguments) -> None:
    """Prints what differs for the named ops (all that exist, without names); `--summary` only counts derivatives."""
    summary = "--summary" in arguments
    names = {name for name in arguments if not name.startswith("-")}
    counts = {"agree": 0, "differ": 0, "are missing": 0}
    agreeing = set()
    for record in records():
        if names and not names & {record.name, record_name(record)}:
            continue
        if resolve(record) is None:
            counts["are missing"] += 1
            continue
        try:
            problems = check_gradients(record) if summary else check_all(record)
        except Exception as error:
            problems = [f"the record itself: {type(error).__name__}: {error}"]
        counts["differ" if problems else "agree"] += 1
        if not problems and differentiable(record):
            agreeing.add(record.name)
        if problems and not summary:
            print(f"{record_name(record)}: {len(problems)} problems")
            for problem in problems[: 12 if names else 3]:
                print(f"    {problem}")
    print("records: " + ", ".join(f"{n} {what}" for what, n in counts.items()))
    print(f"{len(agreeing)} differentiable functions agree with torch in first and second derivatives")


if __name__ == "__main__":
    torch.set_num_threads(1)
    with tg.backends.cudnn.flags(enabled=True, allow_tf32=False):
        main(sys.argv[1:])
