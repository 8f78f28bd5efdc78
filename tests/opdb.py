"""Runs the records of PyTorch's own test database (its wheel carries it) against tensorgrad, with torch as the oracle.

Each `check_*` returns a list of differences; empty means that the record agrees. From the shell, to look at one op:

    python -m tests.opdb add nn.functional.conv2d
"""

from __future__ import annotations

import itertools
import sys
import warnings

import numpy as np
import torch

import tensorgrad as tg

MAX_SAMPLES = 12
NOT_ON_META = {  # they need values, not shapes
    "item", "allclose", "equal", "is_nonzero", "nonzero", "argwhere", "masked_select", "unique", "unique_consecutive",
    "bincount", "repeat_interleave", "combinations", "to", "isin", "histc", "multinomial",
}  # fmt: skip
VALUES_UNDEFINED = {"empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted"}
NOT_WITH_GAPS = {"as_strided", "as_strided_copy", "as_strided_scatter"}  # they read the gaps
TOLERANCE = {  # rtol, atol
    "float32": (1.3e-5, 2e-5), "float64": (1e-7, 1e-7), "float16": (2e-3, 2e-3), "bfloat16": (2e-2, 2e-2),
    "complex64": (2e-5, 3e-5), "complex128": (1e-7, 1e-7),
}  # fmt: skip


def records():
    """All records of the database, in its order."""
    from torch.testing._internal.common_methods_invocations import op_db

    return op_db


def record_name(record) -> str:
    """The record's name with its variant: `norm.nuc`."""
    return record.name + (f".{record.variant_test_name}" if record.variant_test_name else "")


# Records whose samples give the arguments in another order than the function takes them.
REORDERED = {
    "where": lambda self, condition, other, **kw: tg.where(condition, self, other, **kw),
    "polygamma": lambda self, n, **kw: tg.polygamma(n, self, **kw),
    "special.polygamma": lambda self, n, **kw: tg.special.polygamma(n, self, **kw),
}


def resolve(name: str):
    """The function in tensorgrad that a record's name stands for; None if there is none."""
    if name in REORDERED:
        return REORDERED[name]
    found = tg
    for part in name.split("."):
        found = getattr(found, part, None)
        if found is None:
            break
    if found is None and "." not in name:
        found = getattr(tg.Tensor, name, None)
    return found if callable(found) else None


# --- between the two libraries -------------------------------------------------------------------------------------


def to_tg(value, device=None, track=True):
    """A torch value (tensors anywhere inside) as tensorgrad's: same values, strides, dtype and requires_grad."""
    if isinstance(value, torch.Tensor):
        plain = value.detach().resolve_conj().resolve_neg()
        if plain.dtype is torch.bfloat16:
            made = tg.tensor(plain.float().numpy()).to(tg.bfloat16)
        else:
            made = tg.from_numpy(_same_strides(plain.numpy()))
        if device is not None:
            made = made.to(device)
        return made.requires_grad_() if value.requires_grad and track else made
    if isinstance(value, torch.dtype):
        return getattr(tg, str(value).removeprefix("torch."))
    if isinstance(value, torch.device):
        return device or tg.device(str(value))
    if isinstance(value, torch.Generator):
        return None
    if isinstance(value, str) and value == "cpu" and device is not None:
        return device
    if isinstance(value, torch.memory_format | torch.layout):
        return getattr(tg, str(value).removeprefix("torch."), value)
    if isinstance(value, torch.Size):
        return tg.Size(value)
    if isinstance(value, tuple | list):
        items = [to_tg(v, device, track) for v in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, dict):
        return {k: to_tg(v, device, track) for k, v in value.items()}
    return value


def _same_strides(array: np.ndarray) -> np.ndarray:
    if array.flags.c_contiguous or not array.size:
        return array.copy()
    extent = sum((n - 1) * s for n, s in zip(array.shape, array.strides, strict=True)) + array.itemsize
    memory = np.zeros(extent, np.uint8)
    copied = np.ndarray(array.shape, array.dtype, memory, 0, array.strides)
    copied[...] = array
    return copied


def leaves(value) -> list:
    """All tensors in nested values, in order."""
    if isinstance(value, torch.Tensor | tg.Tensor):
        return [value]
    if isinstance(value, tuple | list):
        return [t for v in value for t in leaves(v)]
    if isinstance(value, dict):
        return [t for v in value.values() for t in leaves(v)]
    return []


def numpy_of(tensor) -> np.ndarray:
    """A tensor of either library as a NumPy array; bfloat16 as float32."""
    tensor = tensor.detach()
    if isinstance(tensor, torch.Tensor):
        if tensor._is_zerotensor():
            tensor = tensor.clone()
        tensor = tensor.resolve_conj().resolve_neg()
    name = str(tensor.dtype).removeprefix("torch.")
    return (tensor.float() if name == "bfloat16" else tensor).cpu().numpy()


def differences(expected, actual, what: str, tolerance=None, strides=False) -> list[str]:
    """How two nested results differ: structure, shape, dtype, values."""
    if isinstance(expected, torch.Tensor):
        if not isinstance(actual, tg.Tensor):
            return [f"{what}: expected a tensor, got {type(actual).__name__}"]
        problems = []
        if tuple(expected.shape) != tuple(actual.shape):
            return [f"{what}: shape {tuple(actual.shape)}, expected {tuple(expected.shape)}"]
        if str(expected.dtype) != str(actual.dtype):
            problems.append(f"{what}: dtype {actual.dtype}, expected {expected.dtype}")
        if strides and expected.numel() and expected.stride() != actual.stride():
            problems.append(f"{what}: strides {actual.stride()}, expected {expected.stride()}")
        name = str(expected.dtype).removeprefix("torch.")
        rtol, atol = tolerance or TOLERANCE.get(name, (0, 0))
        a, b = numpy_of(expected), numpy_of(actual)
        with np.errstate(all="ignore"):
            if not np.allclose(b, a, rtol=rtol, atol=atol, equal_nan=True):
                problems.append(f"{what}: values differ: expected {a.reshape(-1)[:6]}, got {b.reshape(-1)[:6]}")
        return problems
    if isinstance(expected, tuple | list):
        if not isinstance(actual, tuple | list) or len(expected) != len(actual):
            return [f"{what}: expected {len(expected)} results, got {actual!r:.80}"]
        pairs = enumerate(zip(expected, actual, strict=True))
        return [d for i, (e, a) in pairs for d in differences(e, a, f"{what}[{i}]", tolerance, strides)]
    if isinstance(expected, bool | int | float | complex):
        if isinstance(actual, bool | int | float | complex):
            same = bool(np.isclose(expected, actual, equal_nan=True))
            return [] if same else [f"{what}: {actual!r}, expected {expected!r}"]
        return [f"{what}: expected a number, got {type(actual).__name__}"]
    return []


class Call:
    """One sample of a record as a call in both libraries."""

    def __init__(self, record, sample, function, device=None):
        self.record, self.sample, self.function = record, sample, function
        self.inputs = (sample.input, *sample.args)
        self.kwargs = {k: v for k, v in sample.kwargs.items() if not isinstance(v, torch.Generator)}
        self.device = device

    def torch(self, inputs=None):
        inputs = self.inputs if inputs is None else inputs
        return self.record.op(*inputs, **self.kwargs)

    def ours(self, inputs=None, kwargs=None):
        inputs = to_tg(self.inputs, self.device) if inputs is None else inputs
        kwargs = to_tg(self.kwargs, self.device) if kwargs is None else kwargs
        return self.function(*inputs, **kwargs)

    def __str__(self):
        def show(v):
            if isinstance(v, torch.Tensor):
                return f"{str(v.dtype).removeprefix('torch.')}{list(v.shape)}"
            if isinstance(v, tuple | list):
                return f"[{', '.join(show(x) for x in v)}]"
            return repr(v)

        return ", ".join([*(show(v) for v in self.inputs), *(f"{k}={show(v)}" for k, v in self.kwargs.items())])


def calls(record, dtype, requires_grad=False, limit=MAX_SAMPLES):
    """The record's first samples of a dtype, as calls."""
    function = resolve(record.name)
    torch.manual_seed(0)
    samples = record.sample_inputs("cpu", dtype, requires_grad=requires_grad)
    for sample in itertools.islice(samples, limit):
        yield Call(record, sample, function)


def _run(call: Call, run, label: str) -> list[str]:
    """Runs one comparison; an exception becomes a difference."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return [f"{d}   ({label}: {call})" for d in run(call)]
        except Exception as error:
            return [f"{type(error).__name__}: {str(error)[:200]}   ({label}: {call})"]


# --- the checks ----------------------------------------------------------------------------------------------------


def check_forward(record, dtype, strides=False) -> list[str]:
    """Values, shapes and dtypes of the results; inputs are left unchanged."""

    def run(call):
        torch.manual_seed(0)
        expected = call.torch()
        inputs = to_tg(call.inputs)
        tg.manual_seed(0)
        result = call.ours(inputs)
        if record.name in VALUES_UNDEFINED:
            result = result.copy_(to_tg(expected)) if result.shape == tuple(expected.shape) else result
        problems = differences(expected, result, "result", strides=strides)
        return problems + differences(list(leaves(call.inputs)), leaves(inputs), "input afterwards")

    return [p for call in calls(record, dtype) for p in _run(call, run, f"forward {dtype}")]


def _weights(results):
    """Fixed gradients for the outputs that require grad."""
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(r.shape, generator=generator, dtype=torch.float64).to(r.dtype) for r in results]


def _gradients(call, order: int):
    """Gradients (and second gradients) in both libraries, as two lists."""
    wanted = [t for t in leaves((call.inputs, call.kwargs)) if t.requires_grad]
    inputs, kwargs = to_tg(call.inputs), to_tg(call.kwargs)
    ours_wanted = [t for t in leaves((inputs, kwargs)) if t.requires_grad]
    results = [r for r in leaves(call.torch()) if r.requires_grad]
    ours = [r for r in leaves(call.ours(inputs, kwargs)) if r.requires_grad]
    if len(results) != len(ours):
        raise AssertionError(f"{len(ours)} results require grad, expected {len(results)}")
    if not results:
        return [], []
    weights = _weights(results)
    first = torch.autograd.grad(results, wanted, weights, create_graph=order > 1, allow_unused=True)
    ours_weights = to_tg(weights)
    mine = tg.autograd.grad(ours, ours_wanted, ours_weights, create_graph=order > 1, allow_unused=True)
    if order == 1:
        return list(first), list(mine)
    pairs = [(f, m) for f, m in zip(first, mine, strict=True) if f is not None and f.requires_grad]
    if not pairs:
        return [], []
    for f, m in pairs:
        if m is None or not m.requires_grad:
            return [f], [m]
    again = _weights([f for f, _ in pairs])
    second = torch.autograd.grad([f for f, _ in pairs], wanted, again, allow_unused=True)
    ours_second = tg.autograd.grad([m for _, m in pairs], ours_wanted, to_tg(again), allow_unused=True)
    return list(second), list(ours_second)


def _compare_gradients(call, order: int) -> list[str]:
    problems = []
    for i, (expected, actual) in enumerate(zip(*_gradients(call, order), strict=True)):
        what = f"{'second ' if order > 1 else ''}gradient {i}"
        if expected is None or actual is None:
            zero = expected if actual is None else actual
            if zero is not None and bool((zero.detach() != 0).any()):
                problems.append(f"{what}: {actual!r:.60}, expected {expected!r:.60}")
        elif not expected.is_sparse:
            problems += differences(expected, actual, what)
    return problems


def check_gradient(record, dtype, order: int = 1, limit=MAX_SAMPLES) -> list[str]:
    """First (`order=1`) or second derivatives."""
    label = f"gradient {order} {dtype}"
    return [
        p for call in calls(record, dtype, True, limit) for p in _run(call, lambda c: _compare_gradients(c, order), label)
    ]


def check_noncontiguous(record, dtype) -> list[str]:
    """The same results and gradients from inputs with gaps between their elements."""

    if record.name in NOT_WITH_GAPS:
        return []

    def run(call):
        expected = call.torch()
        spread = [_with_gaps(v) for v in to_tg(call.inputs)]
        return differences(expected, call.ours(spread), "result", TOLERANCE.get(str(dtype).removeprefix("torch.")))

    return [p for call in calls(record, dtype) for p in _run(call, run, "noncontiguous")]


def _with_gaps(value):
    if isinstance(value, tg.Tensor) and value.ndim:
        wide = np.zeros((*value.shape[:-1], 2 * value.shape[-1]), value._array.dtype)
        wide[..., ::2] = value._array
        return tg.from_numpy(wide[..., ::2])
    if isinstance(value, list | tuple):
        return type(value)(_with_gaps(v) for v in value)
    return value


def check_meta(record, dtype) -> list[str]:
    """Shapes and dtypes on the meta device."""

    if record.name in NOT_ON_META:
        return []

    def run(call):
        expected, actual = leaves(call.torch()), leaves(call.ours(to_tg(call.inputs, "meta"), to_tg(call.kwargs, "meta")))
        if len(expected) != len(actual):
            return [f"{len(actual)} results, expected {len(expected)}"]
        problems = []
        for e, a in zip(expected, actual, strict=True):
            if (tuple(e.shape), str(e.dtype)) != (tuple(a.shape), str(a.dtype)) or not a.is_meta:
                problems.append(f"meta: {a.device} {tuple(a.shape)} {a.dtype}, expected {tuple(e.shape)} {e.dtype}")
        return problems

    return [p for call in calls(record, dtype) for p in _run(call, run, "meta")]


def check_method(record, dtype) -> list[str]:
    """The method gives what the function gives."""
    if record.method_variant is None:
        return []
    method = getattr(tg.Tensor, record.name, None)
    if method is None:
        return [f"Tensor.{record.name} is missing"]

    def run(call):
        if not isinstance(call.sample.input, torch.Tensor):
            return []
        return differences(call.torch(), method(*to_tg(call.inputs), **to_tg(call.kwargs)), "method")

    return [p for call in calls(record, dtype, limit=3) for p in _run(call, run, "method")]


def check_inplace(record, dtype) -> list[str]:
    """The in-place method: same tensor, same values, same gradients; a failed write changes nothing."""
    variant = record.inplace_variant
    if variant is None:
        return []
    name = getattr(variant, "__name__", f"{record.name}_")
    name = name if name.endswith("_") else f"{record.name}_"
    method = getattr(tg.Tensor, name, None) or resolve(name if "." in record.name else record.name + "_")
    if method is None:
        return [f"Tensor.{name} is missing"]

    def run(call):
        if getattr(call.sample, "broadcasts_input", False) or not isinstance(call.sample.input, torch.Tensor):
            return []
        source = to_tg(call.inputs)
        before = source[0].detach().clone()
        try:
            expected = variant(call.sample.input.detach().clone(), *call.sample.args, **call.kwargs)
        except Exception as error:
            try:
                method(*source, **to_tg(call.kwargs))
            except type(error):
                return differences(call.sample.input.detach(), source[0].detach(), "input after the error")
            except Exception as other:
                return [f"in place: {type(other).__name__}, expected {type(error).__name__}: {error}"]
            return [f"in place: no error, expected {type(error).__name__}: {error}"]
        result = method(*source, **to_tg(call.kwargs))
        problems = [] if result is source[0] else ["in place: another tensor was returned"]
        del before
        return problems + differences(expected, result, "in place")

    def gradients(call):
        if not isinstance(call.sample.input, torch.Tensor) or not call.sample.input.requires_grad:
            return []
        call.record = _InPlace(call.record, variant)
        call.function = lambda x, *args, **kwargs: method(x.clone(), *args, **kwargs)
        return _compare_gradients(call, 1)

    problems = [p for call in calls(record, dtype) for p in _run(call, run, "in place")]
    if record.supports_inplace_autograd and not problems:
        for call in calls(record, dtype, True, 4):
            if not getattr(call.sample, "broadcasts_input", False):
                problems += _run(call, gradients, "in-place gradient")
    return problems


class _InPlace:
    def __init__(self, record, variant):
        self.op = lambda x, *args, **kwargs: variant(x.clone(), *args, **kwargs)


def check_out(record, dtype) -> list[str]:
    """`out=` receives the results, resized where its shape is another."""
    if not record.supports_out:
        return []

    def run(call):
        expected = call.torch()
        kwargs = to_tg(call.kwargs)
        if isinstance(expected, torch.Tensor):
            targets = [tg.empty_like(to_tg(expected)), tg.empty(0, dtype=to_tg(expected.dtype))]
            problems = []
            for target in targets:
                result = call.function(*to_tg(call.inputs), **kwargs, out=target)
                problems += [] if result is target else ["out=: another tensor was returned"]
                problems += differences(expected, target, "out=")
            return problems
        targets = tuple(tg.empty(0, dtype=to_tg(e.dtype)) for e in expected)
        call.function(*to_tg(call.inputs), **kwargs, out=targets)
        return differences(tuple(expected), targets, "out=")

    return [p for call in calls(record, dtype, limit=4) for p in _run(call, run, "out=")]


def check_errors(record) -> list[str]:
    """The record's bad inputs raise PyTorch's exception type."""
    if record.error_inputs_func is None:
        return []
    function = resolve(record.name)
    problems = []
    for bad in record.error_inputs("cpu"):
        call = Call(record, bad.sample_input, function)
        label = f"{bad.error_type.__name__} ({bad.error_regex})"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                call.ours()
            except bad.error_type:
                continue
            except Exception as error:
                problems.append(f"error: {type(error).__name__}: {error!s:.120}, expected {label}   ({call})")
            else:
                problems.append(f"error: none, expected {label}   ({call})")
    return problems


def check_all(record) -> list[str]:
    """Every check that the record's declared abilities allow."""
    problems = []
    supported = record.supported_dtypes("cpu")
    backward = record.supported_backward_dtypes("cpu") if record.supports_autograd else set()
    for dtype in (torch.float32, torch.float64, torch.int64, torch.bool, torch.complex64):
        if dtype in supported:
            problems += check_forward(record, dtype)
    main = next((d for d in (torch.float32, torch.int64, torch.bool, torch.complex64) if d in supported), None)
    if main is not None:
        problems += check_method(record, main) + check_inplace(record, main) + check_out(record, main)
        problems += check_noncontiguous(record, main) + check_meta(record, main)
    for dtype in (torch.float64, torch.complex128):
        if dtype in backward:
            problems += check_gradient(record, dtype)
            if record.supports_gradgrad:
                problems += check_gradient(record, dtype, 2, 6)
    return problems + check_errors(record)


def main(names) -> None:
    """Prints what differs for the named ops (all that exist, without names)."""
    good = bad = missing = 0
    for record in records():
        if names and record.name not in names:
            continue
        if resolve(record.name) is None:
            missing += 1
            if names:
                print(f"{record_name(record)}: missing")
            continue
        try:
            problems = check_all(record)
        except Exception as error:
            problems = [f"the record itself: {type(error).__name__}: {error}"]
        good, bad = good + (not problems), bad + bool(problems)
        if problems:
            print(f"{record_name(record)}: {len(problems)} problems")
            for problem in problems[: 12 if names else 3]:
                print(f"    {problem}")
    print(f"{good} records agree, {bad} differ, {missing} are missing")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1:])
