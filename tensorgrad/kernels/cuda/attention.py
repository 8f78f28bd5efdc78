"""Scaled dot-product attention and its gradients without storing the weights (`sources/attention.cu`).

Backward accepts everything that forward accepts. Heads of up to 128 features in float32, float16 and bfloat16 are
computed here, 16-bit ones on the tensor cores; everything else, and GPUs with little shared memory, uses matrix
products.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any, NamedTuple

import cupy
import numpy as np

from tensorgrad.kernels.cuda.runtime import launch, program
from tensorgrad.kernels.cuda.runtime.launch import ARRAY

DTYPES = ("float32", "float16", "bfloat16")
WIDEST = 128
ROWS, THREADS = 64, 128
SHAPE = np.dtype(
    [
        *((name, np.int64, 3) for name in ("q", "k", "v", "out", "grad", "gq", "gk", "gv")), ("mask", np.int64, 4),
        *((name, np.int32) for name in ("batches", "heads", "queries", "keys", "width", "width_of_values")),
        ("scale", np.float32), ("unused", np.int32),
    ]
)  # fmt: skip


@cache
def _most_shared(device: int) -> int:
    """Returns the bytes of shared memory available to a block. Tensor cores for all 16-bit types came with 8.0."""
    properties = cupy.cuda.runtime.getDeviceProperties(device)
    return properties["sharedMemPerBlockOptin"] if properties["major"] >= 8 else 0


class _Plan:
    """Tile sizes for one width of heads, and the bytes of shared memory that each kernel uses."""

    def __init__(self, dtype: np.dtype, width: int):
        self.halves = dtype.itemsize == 2
        self.d = -(-width // 16) * 16
        self.keys = 64 if self.halves and self.d <= 64 else 32
        pad = 16 // dtype.itemsize
        step, turned = self.d + pad, self.keys + pad
        rows, some, size = ROWS * step, self.keys * step, dtype.itemsize
        # Tensor cores read the tiles as they are, and weights from registers; else there are transposes, and a tile.
        columns, tile = (0, 0) if self.halves else (self.d * turned, ROWS * turned)
        self.shared = {
            "attention": (rows + some + (some if self.halves else columns) + tile) * size,
            "attention_grad_queries": (2 * rows + 2 * some + columns + tile) * size,
            "attention_grad_keys": (2 * rows + 2 * some + 2 * columns + tile) * size + 2 * self.keys * 4,
        }


@cache
def _plan(dtype: np.dtype, width: int) -> _Plan:
    return _Plan(dtype, width)


@cache
def _kernel(device: int, name: str, dtype: np.dtype, width: int, **settings):
    """Returns a kernel allowed to use its plan's shared memory on the current device, whose index is `device`."""
    plan = _plan(dtype, width)
    settings |= {"D": plan.d, "KEYS": plan.keys, "HALVES": int(plan.halves)}
    function = program.function("attention", name, program.NAME[dtype], **settings)
    function.raw.max_dynamic_shared_size_bytes = max(48 * 1024, plan.shared.get(name, 0))
    return function


def _four(a, lead):
    """Returns an array as (batch, head, position, feature): leading dimensions broadcast, features contiguous."""
    if a.shape[:-2] != lead:
        a = cupy.broadcast_to(a, (*lead, *a.shape[-2:]))
    if len(lead) != 2:
        batches = int(np.prod(lead[:-1], dtype=np.int64)) if lead else 1
        a = a.reshape(batches, lead[-1] if lead else 1, *a.shape[-2:])
    return _last(a)


def _last(a):
    """Returns an array whose features are contiguous."""
    return a if a.strides[-1] == a.itemsize or a.shape[-1] < 2 else cupy.ascontiguousarray(a)


def _steps(a, count=3):
    return [stride // a.itemsize for stride in a.strides[:count]]


def _pack(*arrays) -> int:
    """Returns how many elements one load can take: those of 16 bytes if everything is a multiple of 16 bytes."""
    size = arrays[0].itemsize
    whole = all(
        a.data.ptr % 16 == 0 and a.shape[-1] * size % 16 == 0 and all(stride % 16 == 0 for stride in a.strides[:3])
        for a in arrays
    )
    return 16 // size if whole else 1


def _mask(mask, lead, queries, keys, dtype):
    """Returns (kind, array, strides) of a mask that broadcasts to (*, L, S)."""
    if mask is None:
        return 0, cupy.empty(0, np.float32), [0, 0, 0, 0]
    kind = 1 if mask.dtype.kind == "b" else 2
    if kind == 2:
        mask = mask.astype(np.float32, copy=False)
    mask = cupy.broadcast_to(mask, (*lead, queries, keys))
    if len(lead) != 2:
        mask = mask.reshape(-1, lead[-1] if lead else 1, queries, keys)
    return kind, mask, _steps(mask, 4)


def _like(q, lead, width):
    """Allocates a result (*, L, width), in q's memory order if that is (batch, position, head, feature)."""
    if len(lead) == 2 and q.strides[1] < q.strides[2] and q.strides[2] <= q.strides[0]:
        return cupy.empty((lead[0], q.shape[2], lead[1], width), q.dtype).transpose(0, 2, 1, 3)
    return cupy.empty((*lead, q.shape[-2], width), q.dtype)


def _grad_like(a, lead):
    """Allocates the gradient of an input, (*, L, features): in its memory order if it is not broadcast."""
    if a.shape[:-2] == lead:
        return _like(a, lead, a.shape[-1])
    return cupy.empty((*lead, *a.shape[-2:]), a.dtype)


def _accepts(q, k, v) -> bool:
    width = max(q.shape[-1], v.shape[-1])
    return (
        program.NAME[q.dtype] in DTYPES
        and 0 < width <= WIDEST
        and q.size * k.size * v.size > 0
        and max(q.shape[-2], k.shape[-2]) < 2**31 - ROWS
        and max(_plan(q.dtype, width).shared.values()) <= _most_shared(q.data.device_id)
    )


def _shape(operands: dict, steps_of_mask, scale) -> launch.Record:
    """Packs sizes and strides for the kernels, which take them by value."""
    q, k, v = (operands[name] for name in "qkv")
    fields = [(name, tuple(_steps(array))) for name, array in operands.items()]
    fields += zip(("batches", "heads", "queries", "width"), q.shape, strict=True)
    fields += ("mask", tuple(steps_of_mask)), ("keys", k.shape[2]), ("width_of_values", v.shape[3]), ("scale", scale)
    return _structure(tuple(fields))


@lru_cache(maxsize=256)
def _structure(fields) -> launch.Record:
    structure = np.zeros((), SHAPE)
    for name, value in fields:
        structure[name] = value
    return launch.record(structure)


# --- plain attention: without a mask, all leading dimensions alike -------------------------------------------------

_NOTHING = np.int64(0)  # the address of a mask, or of dropout


class _Form(NamedTuple):
    """An array as (batch, head, position, feature): what launches depend on."""

    shape: tuple
    strides: tuple
    aligned: bool


def _form(a) -> _Form:
    return _Form(a.shape, a.strides, not a.data.ptr % 16)


def _plain(q, k, v, mask, dropout_mask) -> bool:
    """Returns whether the launches are those of `_forward` and `_backward`."""
    if mask is not None or dropout_mask is not None or not q.ndim == k.ndim == v.ndim == 4:
        return False
    return q.shape[:2] == k.shape[:2] == v.shape[:2] and all(
        a.strides[-1] == a.itemsize or a.shape[-1] < 2 for a in (q, k, v)
    )


def _packs(dtype: np.dtype, *forms: _Form) -> int:
    """`_pack` of arrays of these forms."""
    size = dtype.itemsize
    whole = all(
        form.aligned and form.shape[-1] * size % 16 == 0 and all(stride % 16 == 0 for stride in form.strides[:3])
        for form in forms
    )
    return 16 // size if whole else 1


def _result(like: _Form, lead: tuple, width: int) -> tuple:
    """Returns the shape of `_like`'s memory, and whether positions come before heads in it."""
    if like.strides[1] < like.strides[2] and like.strides[2] <= like.strides[0]:
        return (lead[0], like.shape[2], lead[1], width), True
    return (*lead, like.shape[2], width), False


def _made(place: tuple, dtype: np.dtype):
    """Allocates a result."""
    shape, turned = place
    made = cupy.empty(shape, dtype)
    return made.transpose(0, 2, 1, 3) if turned else made


def _steps_of(form: _Form, size: int) -> tuple:
    return tuple([stride // size for stride in form.strides[:3]])


def _steps_in(place: tuple) -> tuple:
    (_, a, b, width), turned = place
    whole = a * b * width, b * width, width
    return (whole[0], whole[2], whole[1]) if turned else whole


def _described(q: _Form, k: _Form, v: _Form, size: int, scale: float, **others: tuple) -> launch.Record:
    fields: list = [(name, _steps_of(form, size)) for name, form in zip("qkv", (q, k, v))]
    fields += others.items()
    fields += zip(("batches", "heads", "queries", "width"), q.shape, strict=True)
    fields += ("mask", (0, 0, 0, 0)), ("keys", k.shape[2]), ("width_of_values", v.shape[3]), ("scale", scale)
    return _structure(tuple(fields))


@lru_cache(maxsize=1024)
def _forward(device: int, dtype: np.dtype, q: _Form, k: _Form, v: _Form, causal: bool, scale: float) -> tuple:
    """Returns where the result lies, and the launch on (q, k, v, result, logarithms)."""
    width = max(q.shape[3], v.shape[3])
    place = _result(q, q.shape[:2], v.shape[3])
    shape = _described(q, k, v, dtype.itemsize, scale, out=_steps_in(place))
    settings = {"PACK": _packs(dtype, q, k, v), "MASK": 0, "CAUSAL": int(causal), "DROP": 0, "GRAD_MASK": 0}
    function = _kernel(device, "attention", dtype, width, **settings)
    blocks = -(-q.shape[2] // ROWS) * q.shape[0] * q.shape[1]
    given = ARRAY, ARRAY, ARRAY, _NOTHING, _NOTHING, ARRAY, ARRAY, shape
    return place, function.prepared((blocks,), (THREADS,), given, _plan(dtype, width).shared["attention"])


class _Backward(NamedTuple):
    """Where the gradients lie, or None, and the launches."""

    places: tuple
    common: Any
    queries: Any
    keys: Any


@lru_cache(maxsize=1024)
def _backward(
    device: int, dtype: np.dtype, q: _Form, k: _Form, v: _Form, out: _Form, grad: _Form, causal: bool, scale: float,
    need: tuple,
) -> _Backward:  # fmt: skip
    width, lead = max(q.shape[3], v.shape[3]), q.shape[:2]
    queries, heads = q.shape[2], q.shape[0] * q.shape[1]
    both = need[1] or need[2]
    places = (
        _result(q, lead, q.shape[3]) if need[0] else None, _result(k, lead, k.shape[3]) if both else None,
        _result(v, lead, v.shape[3]) if both else None,
    )  # fmt: skip
    steps = {"out": _steps_of(out, dtype.itemsize), "grad": _steps_of(grad, dtype.itemsize)}
    steps |= {name: _steps_in(place) for name, place in zip(("gq", "gk", "gv"), places) if place is not None}
    shape, plan = _described(q, k, v, dtype.itemsize, scale, **steps), _plan(dtype, width)
    settings = {"PACK": _packs(dtype, q, k, v, grad), "MASK": 0, "CAUSAL": int(causal), "DROP": 0, "GRAD_MASK": 0}

    def made(name, blocks, *given):
        function = _kernel(device, name, dtype, width, **settings)
        return function.prepared((blocks,), (THREADS,), (*given, shape), plan.shared.get(name, 0))

    given = ARRAY, ARRAY, ARRAY, ARRAY, _NOTHING, _NOTHING, ARRAY, ARRAY
    return _Backward(
        places,
        made("attention_common", -(-heads * queries // 4), ARRAY, ARRAY, ARRAY),
        made("attention_grad_queries", -(-queries // ROWS) * heads, *given, ARRAY, _NOTHING) if need[0] else None,
        made("attention_grad_keys", -(-k.shape[2] // ROWS) * heads, *given, ARRAY, ARRAY) if both else None,
    )


# --- the ops' kernels ----------------------------------------------------------------------------------------------


def attention(q, k, v, mask, dropout_mask, is_causal, scale):
    """Returns `softmax(scale q k^T + mask) v`, and the logarithms of the sums of weights (float32)."""
    if not _accepts(q, k, v):
        return NotImplemented
    if _plain(q, k, v, mask, dropout_mask):
        place, start = _forward(q.data.device_id, q.dtype, _form(q), _form(k), _form(v), bool(is_causal), float(scale))
        out, logs = _made(place, q.dtype), cupy.empty(q.shape[:3], np.float32)
        start(q, k, v, out, logs)
        return out, logs
    lead = np.broadcast_shapes(q.shape[:-2], k.shape[:-2], v.shape[:-2])
    queries, keys = q.shape[-2], k.shape[-2]
    out = _like(q, lead, v.shape[-1])
    logs = cupy.empty((*lead, queries), np.float32)
    four, whole = [_four(a, lead) for a in (q, k, v)], _four(out, lead)
    kind, look, steps = _mask(mask, lead, queries, keys, q.dtype)
    settings = {"PACK": _pack(*four), "MASK": kind, "CAUSAL": int(is_causal), "DROP": int(dropout_mask is not None)}
    drop = cupy.ascontiguousarray(q[:0] if dropout_mask is None else dropout_mask, dtype=q.dtype)
    shape = _shape({"q": four[0], "k": four[1], "v": four[2], "out": whole}, steps, scale)
    width = max(q.shape[-1], v.shape[-1])
    function = _kernel(q.data.device_id, "attention", q.dtype, width, GRAD_MASK=0, **settings)
    blocks = -(-queries // ROWS) * four[0].shape[0] * four[0].shape[1]
    function((blocks,), (THREADS,), (*four, look, drop, whole, logs, shape),
           shared_mem=_plan(q.dtype, width).shared["attention"])  # fmt: skip
    return out, logs


def attention_grad(g, q, k, v, mask, dropout_mask, out, logs, is_causal, scale, need):
    """Returns the gradients of q, k, v and an added mask; None where not needed.

    They have the broadcast leading dimensions.
    """
    if not _accepts(q, k, v):
        return NotImplemented
    dtype = q.dtype
    if _plain(q, k, v, mask, dropout_mask) and not need[3]:
        grad, whole = (_last(a if a.dtype == dtype else a.astype(dtype)) for a in (g, out))
        logs, common = cupy.ascontiguousarray(logs), cupy.empty(logs.shape, np.float32)
        forms = [_form(a) for a in (q, k, v, whole, grad)]
        wanted = tuple([bool(each) for each in need[:3]])
        how = _backward(q.data.device_id, dtype, *forms, bool(is_causal), float(scale), wanted)
        gq, gk, gv = (None if place is None else _made(place, dtype) for place in how.places)
        how.common(grad, whole, common)
        if gq is not None:
            how.queries(grad, q, k, v, logs, common, gq)
        if gk is not None:
            how.keys(grad, q, k, v, logs, common, gk, gv)
        return gq, gk, gv, None
    lead, device = out.shape[:-2], q.data.device_id
    queries, keys = q.shape[-2], k.shape[-2]
    four = [_four(a, lead) for a in (q, k, v)]
    grad, whole = (_four(a.astype(dtype, copy=False), lead) for a in (g, out))
    kind, look, steps = _mask(mask, lead, queries, keys, dtype)
    drop = cupy.ascontiguousarray(q[:0] if dropout_mask is None else dropout_mask, dtype=dtype)
    gq, gk, gv = (_grad_like(a, lead) if any(wanted) else None
                  for a, wanted in ((q, (need[0], need[3])), (k, need[1:3]), (v, need[1:3])))  # fmt: skip
    operands = {"q": four[0], "k": four[1], "v": four[2], "out": whole, "grad": grad}
    operands |= {name: _four(a, lead) for name, a in (("gq", gq), ("gk", gk), ("gv", gv)) if a is not None}
    shape = _shape(operands, steps, scale)
    width = max(q.shape[-1], v.shape[-1])
    dropped = int(dropout_mask is not None)
    settings = {"PACK": _pack(*four, grad), "MASK": kind, "CAUSAL": int(is_causal), "DROP": dropped}
    heads = four[0].shape[0] * four[0].shape[1]
    logs, common = cupy.ascontiguousarray(logs), cupy.empty(logs.shape, np.float32)
    function = _kernel(device, "attention_common", dtype, width, GRAD_MASK=0, **settings)
    function((-(-heads * queries // 4),), (THREADS,), (grad, whole, common, shape))
    gm = None
    given, plan = (grad, *four, look, drop, logs, common), _plan(dtype, width)
    if need[0] or need[3]:
        gm = cupy.empty((*lead, queries, keys), dtype) if need[3] else None
        name = "attention_grad_queries"
        function = _kernel(device, name, dtype, width, GRAD_MASK=int(need[3]), **settings)
        function(
            (-(-queries // ROWS) * heads,),
            (THREADS,),
            (*given, gq, gq if gm is None else gm, shape),
            shared_mem=plan.shared[name],
        )
    if need[1] or need[2]:
        name = "attention_grad_keys"
        function = _kernel(device, name, dtype, width, GRAD_MASK=0, **settings)
        function((-(-keys // ROWS) * heads,), (THREADS,), (*given, gk, gv, shape), shared_mem=plan.shared[name])
    return gq, gk, gv, gm
