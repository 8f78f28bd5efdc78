"""Between torch and tensorgrad: the same values, the same functions, and how two results differ."""

from __future__ import annotations

import dis
import functools
import inspect
import os
import types

import numpy as np
import torch

import tensorgrad as tg

# Where tensorgrad's tensors of these tests live: DEVICE=cuda, or DEVICE=emulator (tests/emulator), or else the CPU.
HOME = "cuda" if os.environ.get("DEVICE") in ("cuda", "emulator") else None
if os.environ.get("DEVICE") == "emulator":
    from tests import emulator

    emulator.install()


def wait() -> None:
    """Waits for the device, which says late what was wrong with indices."""
    if HOME:
        tg.cuda.synchronize()


TOLERANCE = {  # rtol, atol
    "float32": (1.3e-5, 2e-5), "float64": (1e-7, 1e-7), "float16": (2e-3, 2e-3), "bfloat16": (2e-2, 2e-2),
    "complex32": (2e-3, 2e-3), "complex64": (2e-5, 3e-5), "complex128": (1e-7, 1e-7),
}  # fmt: skip


# --- functions -----------------------------------------------------------------------------------------------------


def seeded(function, *args, **kwargs):
    """What the database's own wrapper does around functions that draw random numbers."""
    tg.manual_seed(42)
    return function(*args, **kwargs)


def translate(function):
    """A Python function of the database, reading tensorgrad wherever it says `torch`; None for any other callable.

    Many records hold a lambda over torch (`lambda x, n: torch.polygamma(n, x)`), which says how to call the function.
    """
    if isinstance(function, functools.partial):
        inner = translate(function.func) or named(f"{function.func.__module__}.{function.func.__name__}"[6:])
        return inner and functools.partial(inner, *function.args, **function.keywords)
    if not isinstance(function, types.FunctionType) or not function.__module__.startswith("torch.testing."):
        return None
    globals_ = {**function.__globals__, "torch": tg, "F": tg.nn.functional, "wrapper_set_seed": seeded}
    return types.FunctionType(
        function.__code__, globals_, function.__name__, function.__defaults__, function.__closure__
    )


def named(name: str):
    """tensorgrad's function of a dotted name, or its tensor method of a plain one; None if there is none."""
    found = tg
    for part in name.split("."):
        found = getattr(found, part, None)
        if found is None:
            break
    if not callable(found) and "." not in name:  # `bool` is a dtype in torch, and a method of tensors
        found = getattr(tg.Tensor, name, None)
    return found if callable(found) and not _refusal(found) else None


def _refusal(function) -> bool:
    """Whether a function only says that what it stands for is not included."""
    return (
        getattr(inspect.unwrap(function) if callable(function) else None, "__module__", "")
        == "tensorgrad.ops.pytorch.absent"
    )


def complete(function) -> bool:
    """Whether all that a Python function of the database asks of torch, or of a tensor, exists in tensorgrad."""
    if isinstance(function, functools.partial):
        return complete(function.func)
    return not hasattr(function, "__code__") or _code_complete(function.__code__)


def _code_complete(code: types.CodeType) -> bool:
    """Follows each chain of attributes (`torch.nn.functional.f`, `x.mT`) through both libraries."""
    theirs: object = None  # where a chain from `torch` or `F` has come to in torch ...
    ours: object = None  # ... and here
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            theirs, ours = {"torch": (torch, tg), "F": (torch.nn.functional, tg.nn.functional)}.get(
                step.argval, (None, None)
            )
        elif step.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            if theirs is None:  # of a value: taken for a tensor if tensors have it
                theirs, ours = torch.Tensor, tg.Tensor
            missing = not hasattr(ours, step.argval) or _refusal(getattr(ours, step.argval))
            if missing and hasattr(theirs, step.argval):
                return False
            theirs, ours = getattr(theirs, step.argval, None), getattr(ours, step.argval, None)
        elif step.opname not in ("PUSH_NULL", "CACHE"):
            theirs = ours = None
    return all(_code_complete(inner) for inner in code.co_consts if isinstance(inner, types.CodeType))


# --- values --------------------------------------------------------------------------------------------------------


def to_tg(value, device=None, memo=None):
    """A torch value (tensors anywhere inside) as tensorgrad's: values, strides, offset, dtype and requires_grad.

    Tensors that share memory (known by `memo`: storage -> copy of all of it) share it afterwards as well.
    """
    memo = {} if memo is None else memo
    if isinstance(value, torch.Tensor):
        made = _tensor(value, memo)
        if device is not None:
            made = made.to(device)
        return made.requires_grad_() if value.requires_grad else made
    if isinstance(value, torch.dtype):
        return getattr(tg, plain_name(value))
    if isinstance(value, torch.device):
        return device or tg.device(HOME or str(value))
    if isinstance(value, str) and value == "cpu" and (device or HOME) is not None:
        return device or HOME
    if isinstance(value, torch.nn.Module):
        return getattr(tg.nn, type(value).__name__)()
    if isinstance(value, types.FunctionType):
        return translate(value) or value
    if isinstance(value, torch.memory_format | torch.layout):
        return getattr(tg, plain_name(value), value)
    if isinstance(value, torch.Size):
        return tg.Size(value)
    return _nested(value, lambda v: to_tg(v, device, memo))


def _tensor(value: torch.Tensor, memo: dict):
    if value.layout is not torch.strided:
        return _sparse(value.detach())
    value = value.detach().resolve_conj().resolve_neg()
    key = value.untyped_storage()._cdata
    if key not in memo:
        flat = torch.empty(0, dtype=value.dtype).set_(value.untyped_storage())
        whole = value.is_contiguous() and flat.numel() == value.numel()
        memo[key] = flat, _copy(value if whole else flat)
        if whole:
            return memo[key][1]
    made = memo[key][1]
    return made.detach().as_strided(tuple(value.shape), value.stride(), value.storage_offset())


def parts_of(value) -> tuple:
    """The tensors of which a sparse tensor of either library consists, the values last."""
    name = plain_name(value.layout)
    if name == "sparse_coo":
        return value._indices(), value._values()
    if name in ("sparse_csr", "sparse_bsr"):
        return value.crow_indices(), value.col_indices(), value.values()
    return value.ccol_indices(), value.row_indices(), value.values()


def _sparse(value: torch.Tensor):
    *indices, values = (_copy(part.resolve_conj().contiguous()) for part in parts_of(value))
    if value.is_sparse:
        return tg.sparse_coo_tensor(*indices, values, tuple(value.shape), is_coalesced=value.is_coalesced())
    layout = getattr(tg, plain_name(value.layout))
    return tg.sparse_compressed_tensor(*indices, values, tuple(value.shape), layout=layout)


_AS_BITS = {torch.bfloat16: torch.int16, torch.complex32: torch.int32}  # which NumPy has not, and what is as wide


def _copy(value: torch.Tensor):
    if value.dtype in _AS_BITS:
        bits = value.view(_AS_BITS[value.dtype]).numpy().copy()  # conversions may change a NaN's sign
        copy = tg.from_numpy(bits.view(getattr(tg, plain_name(value.dtype)).numpy))
    else:
        copy = tg.from_numpy(value.numpy().copy())
    return copy if HOME is None else copy.to(HOME)


def copied(value, device=None, memo=None):
    """A torch value whose tensors are copies, with the strides, offsets and shared memory of the originals."""
    memo = {} if memo is None else memo
    if isinstance(value, torch.Tensor):
        plain = value.detach()
        if device is not None:
            copy = plain.to(device)
        elif plain.layout is not torch.strided or plain.is_conj() or plain.is_neg():
            copy = plain.clone()
        else:
            key = plain.untyped_storage()._cdata
            if key not in memo:
                flat = torch.empty(0, dtype=plain.dtype).set_(plain.untyped_storage())
                memo[key] = flat, flat.clone()
            copy = memo[key][1].as_strided(plain.shape, plain.stride(), plain.storage_offset())
        return copy.requires_grad_(value.requires_grad)
    if isinstance(value, torch.device) or (isinstance(value, str) and value == "cpu"):
        return device or value
    if isinstance(value, torch.Size):
        return value
    return _nested(value, lambda v: copied(v, device, memo))


def with_gaps(value):
    """A torch value whose tensors have gaps between the elements of their last dimension."""
    if isinstance(value, torch.Tensor) and value.ndim and not value.is_conj() and not value.is_neg():
        wide = torch.zeros(*value.shape[:-1], 2 * value.shape[-1], dtype=value.dtype)
        wide[..., ::2] = value.detach()
        return wide[..., ::2].requires_grad_(value.requires_grad)
    return value if isinstance(value, torch.Tensor) else _nested(value, with_gaps)


def _nested(value, convert):
    if isinstance(value, tuple | list):
        items = [convert(v) for v in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, dict):
        return {k: convert(v) for k, v in value.items()}
    return value


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
    """A tensor of either library as a NumPy array; bfloat16 as float32, complex32 as complex64."""
    tensor = tensor.detach()
    if isinstance(tensor, torch.Tensor):
        if tensor._is_zerotensor():
            tensor = tensor.clone()
        tensor = tensor.resolve_conj().resolve_neg()
    wider = {"bfloat16": tensor.float, "complex32": tensor.cfloat}.get(plain_name(tensor.dtype))
    return (tensor if wider is None else wider()).cpu().numpy()


class _Places:
    """The places of an array's elements as bytes that are not read: an array on a GPU can be asked for them, too."""

    def __init__(self, array):
        address = array.data.ptr if hasattr(array.data, "ptr") else array.__array_interface__["data"][0]
        self.__array_interface__ = {
            "version": 3, "typestr": f"|V{array.itemsize}", "data": (address, True), "shape": array.shape,
            "strides": array.strides,
        }  # fmt: skip


def share_memory(a, b) -> bool:
    """Whether two arrays of one device share memory. (CuPy's own answer is wrong for those without dimensions.)"""
    if not a.size or not b.size:
        return False
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return np.shares_memory(a, b)
    return np.shares_memory(np.asarray(_Places(a)), np.asarray(_Places(b)))


def plain_name(value) -> str:
    """`float32` for either library's dtype."""
    return str(value).removeprefix("torch.").removeprefix("tensorgrad.")


def shown(value) -> str:
    """Arguments in short: tensors by dtype and shape."""
    if isinstance(value, torch.Tensor | tg.Tensor):
        return f"{plain_name(value.dtype)}{list(value.shape)}"
    if isinstance(value, tuple | list):
        return f"[{', '.join(shown(x) for x in value)}]"
    return repr(value)


# --- differences ---------------------------------------------------------------------------------------------------


def differences(expected, actual, what: str, strides=False) -> list[str]:
    """How two nested results differ: structure, shape, dtype, values, and strides if asked."""
    if isinstance(expected, torch.Tensor):
        return _tensor_differences(expected, actual, what, strides)
    if isinstance(expected, tuple | list):
        if not isinstance(actual, tuple | list) or len(expected) != len(actual):
            return [f"{what}: expected {len(expected)} results, got {actual!r:.80}"]
        names = getattr(type(expected), "n_sequence_fields", None) and type(expected).__name__
        problems = []
        if names and type(actual).__name__ != names:
            problems.append(f"{what}: a {type(actual).__name__}, expected {names}")
        pairs = enumerate(zip(expected, actual, strict=True))
        return problems + [d for i, (e, a) in pairs for d in differences(e, a, f"{what}[{i}]", strides)]
    if isinstance(expected, bool | int | float | complex):
        if type(actual) is not type(expected):
            return [f"{what}: expected {expected!r}, got a {type(actual).__name__}"]
        same = bool(np.isclose(expected, actual, rtol=1e-5, equal_nan=True))
        return [] if same else [f"{what}: {actual!r}, expected {expected!r}"]
    return [] if plain_name(expected) == plain_name(actual) else [f"{what}: {actual!r:.80}, expected {expected!r:.80}"]


def _tensor_differences(expected, actual, what, strides) -> list[str]:
    if not isinstance(actual, tg.Tensor):
        return [f"{what}: expected a tensor, got {type(actual).__name__}"]
    if tuple(expected.shape) != tuple(actual.shape):
        return [f"{what}: shape {tuple(actual.shape)}, expected {tuple(expected.shape)}"]
    problems = []
    if plain_name(expected.dtype) != plain_name(actual.dtype):
        problems.append(f"{what}: dtype {actual.dtype}, expected {expected.dtype}")
    if expected.layout is not torch.strided or plain_name(actual.layout) != "strided":
        return problems + _sparse_differences(expected, actual, what)
    if strides and expected.numel() and expected.stride() != actual.stride():
        problems.append(f"{what}: strides {actual.stride()}, expected {expected.stride()}")
    if not close(numpy_of(actual), numpy_of(expected), plain_name(expected.dtype)):
        a, b = numpy_of(expected).reshape(-1), numpy_of(actual).reshape(-1)
        problems.append(f"{what}: values differ: expected {a[:6]}, got {b[:6]}")
    return problems


def _sparse_differences(expected, actual, what) -> list[str]:
    """Layout, whether coalesced, and each part: the indices exactly."""
    if plain_name(expected.layout) != plain_name(actual.layout):
        return [f"{what}: layout {actual.layout}, expected {expected.layout}"]
    if expected.is_sparse and expected.is_coalesced() != actual.is_coalesced():
        return [f"{what}: is_coalesced() is {actual.is_coalesced()}, expected {expected.is_coalesced()}"]
    pairs = zip(parts_of(expected), parts_of(actual), strict=True)
    return [d for k, (e, a) in enumerate(pairs) for d in _tensor_differences(e, a, f"{what}, part {k}", False)]


def close(actual, expected, dtype: str, slack=0.0) -> bool:
    """Whether arrays agree to a dtype's tolerance, and `slack` (an array or a number) beyond it."""
    rtol, atol = TOLERANCE.get(dtype, (0, 0))
    with np.errstate(all="ignore"):
        if actual.dtype.kind not in "fc" and expected.dtype.kind not in "fc":
            return np.array_equal(actual, expected)
        away = np.abs(actual - expected)
        if np.isfinite(expected).all() and (away <= atol + rtol * np.abs(expected)).all():
            return True  # as nearly always; `isclose` takes longer than most ops
        same = np.isclose(actual, expected, rtol=rtol, atol=atol, equal_nan=True)
        return bool(np.all(same | (away <= slack)))
