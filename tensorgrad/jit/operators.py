"""The operators that a program may use: `torch.add`, `ops.prim.dtype`, `ops.torchvision.nms`.

Those on tensors are the ones of `torch.ops.aten`, which take their arguments in the order of PyTorch's schemas, as a
program gives them. The table below has those that are written otherwise here. An operator that does not exist raises
its error where the program reaches it: programs contain branches that they never take.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import tensorgrad as torch
from tensorgrad import _ops, devices, nested
from tensorgrad.compat import torchvision_operators
from tensorgrad.jit.plain_operators import PLAIN, PRIM
from tensorgrad.jit.types import DTYPES, FORMATS, number_of
from tensorgrad.nn import functional as F
from tensorgrad.size import Size
from tensorgrad.tensor import Tensor

BUILTINS: dict[str, Callable[..., Any]] = {
    "int": int, "float": float, "bool": bool, "complex": complex, "range": range,
    **{name: PLAIN[name] for name in (
        "abs", "all", "any", "bin", "chr", "divmod", "hash", "hex", "len", "list", "max", "min", "oct", "ord", "round",
        "print", "sorted", "str", "sum")},
}  # fmt: skip

# Operators that reach what a program does not own: files, streams, the memory of others.
EXCLUDED = frozenset({"from_file", "record_stream", "set_", "is_set_to"})
# Operators of PyTorch that `torch.ops.aten` does not list, and that take the arguments of its schemas.
MORE = frozenset(
    [
        "__and__", "__or__", "__xor__", "__lshift__", "__rshift__", "__iand__", "__ior__", "__ixor__",
        "__ilshift__", "__irshift__", "_weight_norm", "adaptive_avg_pool2d", "adaptive_avg_pool3d",
        "as_tensor", "can_cast", "coalesce", "cpu", "cuda",
        "dense_dim", "dequantize", "element_size", "glu",
        "indices", "initial_seed", "int_repr", "is_autocast_enabled", "is_coalesced", "is_grad_enabled",
        "istft", "manual_seed", "pad", "promote_types", "relu6", "seed",
        "set_grad_enabled", "sparse_coo_tensor", "sparse_dim", "tensor", "to_dense", "to_sparse",
        "unique_consecutive", "values", "ctc_loss", "requires_grad_", "item", "size", "stride",
        "numel", "dim",
    ]
)  # fmt: skip
# Operators whose results are lists, not tuples.
LISTS = frozenset(
    [
        "split", "split_with_sizes", "unsafe_split", "unsafe_split_with_sizes", "chunk", "unsafe_chunk",
        "unbind", "tensor_split", "hsplit", "vsplit", "dsplit", "meshgrid", "broadcast_tensors", "atleast_1d",
        "atleast_2d", "atleast_3d", "nonzero_numpy", "gradient", "size", "stride",
    ]
)  # fmt: skip
# Where a dtype stands among the arguments.
DTYPE_AT = {"softmax": 2, "log_softmax": 2, "view": 1, "promote_types": 0, "can_cast": 0, "to_dense": 1}
ONLY_IF_GIVEN = ("dtype", "layout", "device", "pin_memory", "memory_format", "generator", "out", "implicit")


def unknown(path: str) -> Callable[..., Any]:
    """Returns what stands for an operator that does not exist: it raises NotImplementedError."""

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{path[:200]}: tensorgrad does not have this operator, or programs may not use it")

    return refuse


@functools.lru_cache(4096)  # of names that a file may invent
def find(path: str, version: int) -> Callable[..., Any]:
    """Returns the function for an operator. `version`: that of the archive, for which it was written."""
    space, _, name = path.removeprefix("ops.").rpartition(".")
    if path.startswith("ops.") and space == "prim":
        return PRIM.get(name) or OF_PRIM.get(name) or unknown(path)
    if path.startswith("ops.") and space not in ("aten", "torch"):
        return _foreign(space, name) or unknown(path)
    for (old, last), function in UPGRADED.items():
        if old == name and version <= last:
            return function
    plain, tensors = PLAIN.get(name), on_tensors(name)
    if plain is None or tensors is None:
        return plain or tensors or unknown(path)
    return _either(plain, tensors)


def _either(plain: Callable[..., Any], tensors: Callable[..., Any]) -> Callable[..., Any]:
    """An operator that exists for tensors and for other values."""

    def run(*args: Any, **kwargs: Any) -> Any:
        first = args[0] if args else None
        if isinstance(first, Tensor) or (isinstance(first, int | float | complex) and _any_tensor(args)):
            return tensors(*args, **kwargs)
        return plain(*args, **kwargs)

    return run


def _any_tensor(args: tuple) -> bool:
    return any(isinstance(arg, Tensor) for arg in args)


@functools.lru_cache(4096)
def on_tensors(name: str) -> Callable[..., Any] | None:
    """Returns an operator on tensors, or None."""
    if name in EXCLUDED:
        return None
    function = WRITTEN_OTHERWISE.get(name)
    if function is None:
        if name not in MORE and name not in _ops._overloads():
            return None
        function = _ops._function(name)
    place, lists = DTYPE_AT.get(name), name in LISTS

    def run(*args: Any, **kwargs: Any) -> Any:
        if place is not None and len(args) > place:
            args = tuple(_dtype(a) if i >= place else a for i, a in enumerate(args))
        if kwargs:
            kwargs = _options(kwargs)
        result = function(*args, **kwargs)
        if isinstance(result, Tensor):
            return result
        if isinstance(result, Size) or (lists and isinstance(result, tuple)):
            return list(result)
        return number_of(result)

    return run


def _options(given: dict[str, Any]) -> dict[str, Any]:
    """Named arguments as the functions here take them."""
    made = {}
    for name, value in given.items():
        if name in ONLY_IF_GIVEN and (value is None or value is False):
            continue
        if name == "layout":
            if value != 0:
                raise NotImplementedError("a layout that is not strided")
            continue
        if name in ("dtype", "out_dtype"):
            value = _dtype(value)
        elif name == "memory_format":
            value = FORMATS[value]
        elif name == "non_blocking":
            continue
        made[name] = value
    return made


def _dtype(number: Any) -> Any:
    """The dtype of a number of PyTorch's."""
    if not isinstance(number, int) or isinstance(number, bool):
        return number
    found = DTYPES[number] if 0 <= number < len(DTYPES) else None
    if found is None:
        raise TypeError(f"there is no dtype of number {number}")
    return found


def _foreign(space: str, name: str) -> Callable[..., Any] | None:
    """An operator of another library, that this process has: torchvision's, or the program's own."""
    if space == "torchvision":
        return torchvision_operators.OPERATORS.get(name)
    if space == "profiler":
        return (lambda *args: (name,)) if name.startswith("_record_function") else None
    if name.startswith("__") or "." in space:
        return None
    found = vars(_ops.ops).get(space)
    operator = None if found is None else vars(found).get(name)
    return operator if isinstance(operator, _ops.OpOverloadPacket) else None


# --- operators that are written otherwise here -----------------------------------------------------------------------


def _to(x: Tensor, *args: Any, dtype: Any = None, device: Any = None, copy: bool = False, **options: Any) -> Tensor:
    """All forms of `to`: a tensor like which it becomes, or a device, a dtype, or both."""
    rest = list(args)
    if rest and isinstance(rest[0], Tensor):
        other = rest.pop(0)
        dtype, device = other.dtype, other.device
    else:
        if rest and (rest[0] is None or isinstance(rest[0], devices.device)):
            device = rest.pop(0)
        if rest and (rest[0] is None or (isinstance(rest[0], int) and not isinstance(rest[0], bool))):
            dtype = _dtype(rest.pop(0))
    format = options.get("memory_format")
    if rest[2:] and rest[2] is not None:
        format = FORMATS[rest[2]]
    given = {} if format is None else {"memory_format": format}
    return x.to(device=device, dtype=dtype, copy=copy or bool(rest[1:2] and rest[1]), **given)


def _with_alpha(name: str) -> Callable[..., Any]:
    """`add` and the like: a factor may follow a number without its name. (In Python, that is an old form.)"""
    function = _ops._function(name)

    def run(x: Any, other: Any, *alpha: Any, **named: Any) -> Any:
        return function(x, other, **(named | ({"alpha": alpha[0]} if alpha else {})))

    return run


def _extreme(name: str) -> Callable[..., Any]:
    function = getattr(torch, name)

    def extreme(x: Tensor, *args: Any, **kwargs: Any) -> Any:
        return function(x, *args, **kwargs)

    return extreme


def _moment(name: str) -> Callable[..., Any]:
    function = getattr(torch, name)

    def moment(x: Tensor, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and isinstance(args[0], bool):
            return function(x, unbiased=args[0])
        if len(args) > 1:
            dim, unbiased, keepdim = (*args, False)[:3]
            return function(x, dim, unbiased, keepdim)
        return function(x, *args, **kwargs)

    return moment


def _copy_(x: Tensor, other: Any, non_blocking: bool = False) -> Tensor:
    return x.copy_(other) if isinstance(other, Tensor) else x.fill_(other)


def _index_put(x: Tensor, indices: Sequence[Any], values: Tensor, accumulate: bool = False) -> Tensor:
    return _index_put_(x.clone(), indices, values, accumulate)


def _index_put_(x: Tensor, indices: Sequence[Any], values: Tensor, accumulate: bool = False) -> Tensor:
    if all(index is not None for index in indices):
        return x.index_put_(tuple(indices), values, accumulate)
    where = tuple(slice(None) if index is None else index for index in indices)
    if accumulate:
        places = torch.arange(x.numel()).view(x.shape)[where]
        x.put_(places, values.expand(places.shape), accumulate=True)
    else:
        x[where] = values
    return x


def _convolution(x: Tensor, weight: Tensor, bias: Any, *more: Any) -> Tensor:
    return torch.convolution(x, weight, bias, *more[:6])


def _interpolate(mode: str, corners: bool = False, antialias: bool = False) -> Callable[..., Tensor]:
    """The operators behind `interpolate`: with a list of factors, or with one for each dimension (older files)."""

    def interpolate(x: Tensor, size: Any = None, *args: Any, **named: Any) -> Tensor:
        rest = list(args)
        align = bool(named.get("align_corners", rest.pop(0) if corners and rest else False))
        factors = named.get("scale_factors", rest[0] if rest else None)
        if factors is not None and not isinstance(factors, list | tuple):
            factors = None if None in rest else rest
        options: dict[str, Any] = {"mode": mode, "antialias": antialias}
        if corners:
            options["align_corners"] = align
        if size is None:
            return F.interpolate(x, scale_factor=list(factors or ()), **options)
        return F.interpolate(x, size=list(size), **options)

    return interpolate


def _pad(mode: str) -> Callable[..., Tensor]:
    return lambda x, pad: F.pad(x, pad, mode)


def _inplace(name: str) -> Callable[..., Tensor]:
    function = getattr(F, name)
    return lambda x, *args: function(x, *args, inplace=True)


# Losses, and what their operators take after the reduction, which is a number. First, what they take.
LOSSES: dict[str, tuple[str, int, tuple[str, ...]]] = {
    "binary_cross_entropy": ("weight", 1, ()),
    "binary_cross_entropy_with_logits": ("weight pos_weight", 1, ()),
    "cross_entropy_loss": ("weight", 1, ("ignore_index", "label_smoothing")),
    "nll_loss": ("weight", 1, ("ignore_index",)),
    "nll_loss_nd": ("weight", 1, ("ignore_index",)),
    "nll_loss2d": ("weight", 1, ("ignore_index",)),
    "l1_loss": ("", 1, ()),
    "mse_loss": ("", 1, ()),
    "smooth_l1_loss": ("", 1, ("beta",)),
    "huber_loss": ("", 1, ("delta",)),
    "soft_margin_loss": ("", 1, ()),
    "multilabel_margin_loss": ("", 1, ()),
    "multi_margin_loss": ("p margin weight", 1, ()),
    "kl_div": ("", 1, ("log_target",)),
    "hinge_embedding_loss": ("margin", 1, ()),
}
FUNCTIONS = {"cross_entropy_loss": "cross_entropy", "nll_loss_nd": "nll_loss", "nll_loss2d": "nll_loss"}


def _loss(name: str) -> Callable[..., Tensor]:
    before, default, after = LOSSES[name]
    function = getattr(F, FUNCTIONS.get(name, name))
    names = (*before.split(), "reduction", *after)

    def loss(x: Tensor, target: Tensor, *args: Any, **named: Any) -> Tensor:
        given = {**dict(zip(names, args, strict=False)), **named}
        reduction = _ops.REDUCTIONS[given.pop("reduction", default)]
        if reduction == "sum" and name == "kl_div":
            return function(x, target, reduction="sum", **given)
        return function(x, target, reduction=reduction, **given)

    return loss


def _stft(x: Tensor, n_fft: int, hop: Any = None, win: Any = None, window: Any = None, *rest: Any, **named: Any) -> Any:
    """Both forms: with `center` and `pad_mode`, and without, where the caller has padded."""
    if not (len(rest) > 1 and isinstance(rest[1], str)) and "center" not in named:
        names = ("normalized", "onesided", "return_complex", "align_to_window")
        return torch.stft(x, n_fft, hop, win, window, center=False, **dict(zip(names, rest, strict=False)), **named)
    return torch.stft(x, n_fft, hop, win, window, *rest, **named)


def _adaptive_max_pool(dims: int) -> Callable[..., Any]:
    function = getattr(F, f"adaptive_max_pool{dims}d")
    return lambda x, size: function(x, size, return_indices=True)


def _fractional_max_pool(dims: int) -> Callable[..., Any]:
    function = getattr(F, f"fractional_max_pool{dims}d")
    return lambda x, kernel, size, samples: function(x, kernel, size, return_indices=True, _random_samples=samples)


def _max_unpool(x: Tensor, indices: Tensor, size: Sequence[int], *_: Any) -> Tensor:
    """Every number at its place in planes of zeros."""
    dims, shape = len(size), x.shape
    planes = x.new_zeros([*shape[:-dims], math.prod(size)])
    return planes.scatter(-1, indices.flatten(-dims), x.flatten(-dims)).view(*shape[:-dims], *size)


def _tensordot(a: Tensor, b: Tensor, dims: Sequence[int], others: Sequence[int]) -> Tensor:
    return torch.tensordot(a, b, (list(dims), list(others)))


def _listed(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of tensors, as an operator on a list of them."""
    return lambda tensors, *args, **kwargs: function(*tensors, *args, **kwargs)


def _at_least(name: str) -> Callable[..., Any]:
    function = getattr(torch, name)
    return lambda x: function(x) if isinstance(x, Tensor) else tuple(function(t) for t in x)


def _einsum(equation: str, tensors: Sequence[Tensor], path: Any = None) -> Tensor:
    return torch.einsum(equation, *tensors)


def _where(condition: Tensor, *args: Any) -> Any:
    return torch.where(condition, *args) if args else list(torch.where(condition))


def _tensor(value: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    return torch.tensor(value, dtype=_dtype(dtype), device=device, requires_grad=requires_grad)


def _as_tensor(value: Any, dtype: Any = None, device: Any = None) -> Tensor:
    return torch.as_tensor(value, dtype=_dtype(dtype), device=device)


def _number_to_tensor(value: Any) -> Tensor:
    """A number as a tensor without dimensions: a float becomes one of 64 bits."""
    dtype = {bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128}[type(value)]
    return torch.tensor(value, dtype=dtype)


def _repeat_interleave(x: Tensor, *args: Any, **named: Any) -> Tensor:
    return torch.repeat_interleave(x, *args, **named)


def _rrelu(x: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, generator: Any = None) -> Any:
    return F.rrelu(x, lower, upper, training)


def _unique(x: Tensor, sorted: bool = True, inverse: bool = False, counts: bool = False) -> tuple:
    """All three results: those that are not wanted are empty."""
    found = torch.unique(x, sorted, inverse, counts)
    return _three(found, inverse, counts)


def _unique_dim(x: Tensor, dim: int, sorted: bool = True, inverse: bool = False, counts: bool = False) -> tuple:
    return _three(torch.unique(x, sorted, inverse, counts, dim), inverse, counts)


def _unique_consecutive(x: Tensor, inverse: bool = False, counts: bool = False, dim: int | None = None) -> tuple:
    return _three(torch.unique_consecutive(x, inverse, counts, dim), inverse, counts)


def _three(found: Any, inverse: bool, counts: bool) -> tuple:
    parts = list(found) if isinstance(found, tuple) else [found]
    empty = torch.empty(0, dtype=torch.int64)
    made = [parts.pop(0)]
    made.extend(parts.pop(0) if wanted else empty for wanted in (inverse, counts))
    return tuple(made)


def _pack(x: Tensor, lengths: Tensor, batch_first: bool) -> tuple:
    packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first)
    return packed.data, packed.batch_sizes


def _unpack(data: Tensor, sizes: Tensor, batch_first: bool, value: float, total: int = -1) -> tuple:
    packed = torch.nn.utils.rnn.PackedSequence(data, sizes)
    return torch.nn.utils.rnn.pad_packed_sequence(packed, batch_first, value, None if total <= 0 else total)


def _encoder_layer(
    x: Tensor, width: int, heads: int, qkv_weight: Tensor, qkv_bias: Tensor, out_weight: Tensor, out_bias: Tensor,
    gelu: bool, first: bool, eps: float, weight1: Tensor, bias1: Tensor, weight2: Tensor, bias2: Tensor,
    up: Tensor, up_bias: Tensor, down: Tensor, down_bias: Tensor, mask: Tensor | None = None, kind: int | None = None,
) -> Tensor:  # fmt: skip
    """What PyTorch computes for `nn.TransformerEncoderLayer` in evaluation, where it is one operator."""
    if x.is_nested:
        given = (width, heads, qkv_weight, qkv_bias, out_weight, out_bias, gelu, first, eps, weight1, bias1, weight2,
                 bias2, up, up_bias, down, down_bias)  # fmt: skip
        return nested.nested_tensor([_encoder_layer(piece[None], *given)[0] for piece in x.unbind()])

    def attend(y: Tensor) -> Tensor:
        return _attention(y, y, y, width, heads, qkv_weight, qkv_bias, out_weight, out_bias, mask, False, True, kind)[0]

    def feed(y: Tensor) -> Tensor:
        y = F.linear(y, up, up_bias)
        return F.linear(F.gelu(y) if gelu else F.relu(y), down, down_bias)

    def norm(y: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return F.layer_norm(y, (width,), weight, bias, eps)

    if first:
        x = x + attend(norm(x, weight1, bias1))
        return x + feed(norm(x, weight2, bias2))
    x = norm(x + attend(x), weight1, bias1)
    return norm(x + feed(x), weight2, bias2)


def _left_aligned(x: Tensor, mask: Tensor) -> bool:
    """Whether what a mask hides, where it is False, is at the end of each sequence."""
    return not bool((~mask[:, :-1] & mask[:, 1:]).any())


def _nested(x: Tensor, mask: Tensor, mask_check: bool = True) -> Tensor:
    """Sequences without what a mask hides: a nested tensor."""
    if mask_check and not _left_aligned(x, mask):
        raise RuntimeError("Expected mask to be left-aligned")
    return nested.nested_tensor([row[shown] for row, shown in zip(x, mask, strict=True)])


def _attention(
    query: Tensor, key: Tensor, value: Tensor, width: int, heads: int, qkv_weight: Tensor, qkv_bias: Tensor,
    out_weight: Tensor, out_bias: Tensor, mask: Tensor | None = None, need_weights: bool = True,
    average: bool = True, kind: int | None = None,
) -> tuple:  # fmt: skip
    """What PyTorch computes for `nn.MultiheadAttention` in evaluation. `kind`: 0 of pairs, 1 of keys, 2 of both."""
    keys = mask if kind == 1 else None
    pairs = mask if kind == 0 else None
    if kind == 2 and mask is not None:
        pairs = mask.reshape(-1, *mask.shape[-2:]) if mask.dim() == 4 else mask
    result, weights = F.multi_head_attention_forward(
        query.transpose(0, 1), key.transpose(0, 1), value.transpose(0, 1), width, heads, qkv_weight, qkv_bias, None,
        None, False, 0.0, out_weight, out_bias, False, keys, need_weights, pairs, average_attn_weights=average,
    )  # fmt: skip
    return result.transpose(0, 1), weights


def _split(x: Tensor, *args: Any, **named: Any) -> tuple:
    return torch.split(x, *args, **named)


def _embedding_bag(
    weight: Tensor, indices: Tensor, offsets: Tensor, by_frequency: bool = False, mode: int = 0, sparse: bool = False,
    weights: Any = None, include_last: bool = False, padding: int | None = None,
) -> tuple:  # fmt: skip
    made = F.embedding_bag(
        indices, weight, offsets, None, 2.0, by_frequency, ("sum", "mean", "max")[mode], sparse, weights, include_last,
        padding,
    )  # fmt: skip
    empty = torch.empty(0, dtype=torch.int64)
    return made, empty, empty, empty


def _elu_(x: Tensor, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Tensor:
    return x.copy_(_ops._function("elu")(x, alpha, scale, input_scale))


WRITTEN_OTHERWISE: dict[str, Callable[..., Any]] = {
    "to": _to, "max": _extreme("max"), "min": _extreme("min"), "copy_": _copy_, "where": _where,
    **{name: _with_alpha(name) for name in ("add", "add_", "sub", "sub_", "subtract", "subtract_", "rsub")},
    **{name: _moment(name) for name in ("std", "var", "std_mean", "var_mean")},
    "index_put": _index_put, "index_put_": _index_put_, "_index_put_impl_": _index_put_, "_convolution": _convolution,
    "upsample_nearest1d": _interpolate("nearest"), "upsample_nearest2d": _interpolate("nearest"),
    "upsample_nearest3d": _interpolate("nearest"), "_upsample_nearest_exact1d": _interpolate("nearest-exact"),
    "_upsample_nearest_exact2d": _interpolate("nearest-exact"),
    "_upsample_nearest_exact3d": _interpolate("nearest-exact"),
    "upsample_linear1d": _interpolate("linear", True), "upsample_bilinear2d": _interpolate("bilinear", True),
    "upsample_trilinear3d": _interpolate("trilinear", True), "upsample_bicubic2d": _interpolate("bicubic", True),
    "_upsample_bilinear2d_aa": _interpolate("bilinear", True, True),
    "_upsample_bicubic2d_aa": _interpolate("bicubic", True, True),
    **{f"{kind}_pad{n}d": _pad(mode) for kind, mode in (("reflection", "reflect"), ("replication", "replicate"))
       for n in (1, 2, 3)},
    **{f"{name}_": _inplace(name) for name in ("silu", "hardswish", "relu6", "mish", "hardsigmoid", "selu")},
    "elu_": _elu_, "gelu_": lambda x, approximate="none": x.copy_(F.gelu(x, approximate=approximate)),
    "hardswish": F.hardswish, "hardsigmoid": F.hardsigmoid, "log_sigmoid": F.logsigmoid,
    **{name: _loss(name) for name in LOSSES}, "stft": _stft, "einsum": _einsum, "tensor": _tensor,
    "as_tensor": _as_tensor, "meshgrid": lambda tensors, indexing="ij": torch.meshgrid(*tensors, indexing=indexing),
    "broadcast_tensors": _listed(torch.broadcast_tensors), "cartesian_prod": _listed(torch.cartesian_prod),
    "chain_matmul": _listed(torch.chain_matmul),
    **{name: _at_least(name) for name in ("atleast_1d", "atleast_2d", "atleast_3d")},
    **{f"adaptive_max_pool{n}d": _adaptive_max_pool(n) for n in (1, 2, 3)}, "tensordot": _tensordot,
    **{f"fractional_max_pool{n}d": _fractional_max_pool(n) for n in (2, 3)}, "max_unpool2d": _max_unpool,
    "max_unpool3d": _max_unpool, "rrelu_": lambda x, *args, **named: x.copy_(_rrelu(x, *args, **named)),
    "repeat_interleave": _repeat_interleave, "rrelu": _rrelu, "_unique2": _unique, "unique_dim": _unique_dim,
    "unique_consecutive": _unique_consecutive, "_pack_padded_sequence": _pack, "_pad_packed_sequence": _unpack,
    "_transformer_encoder_layer_fwd": _encoder_layer, "_native_multi_head_attention": _attention,
    "_nested_tensor_from_mask_left_aligned": _left_aligned, "_nested_tensor_from_mask": _nested,
    "to_padded_tensor": nested.to_padded_tensor, "dim": lambda x: x.dim(),
    "embedding_bag": _embedding_bag, "_unwrap_optional": lambda value: value, "wait": lambda value: value,
    "numpy_T": lambda x: x.T, "mT": lambda x: x.mT, "mH": lambda x: x.mH, "matrix_H": lambda x: x.H,
    "nonzero_numpy": lambda x: torch.nonzero(x, as_tuple=True), "is_leaf": lambda x: x.is_leaf,
    "data": lambda x: x.data, "device": devices.device, "is_scripting": lambda: True,
    "get_device": lambda x: x.get_device(), "_shape_as_tensor": lambda x: torch.tensor(list(x.shape)),
    "_reshape_from_tensor": lambda x, shape: x.reshape(shape.tolist()),
    "ScalarImplicit": lambda x: x.item(), "IntImplicit": lambda x: x.item(), "FloatImplicit": lambda x: x.item(),
    "Int": int, "Float": float, "Bool": bool, "Complex": lambda x, *imag: complex(x, *map(float, imag)),
    "_cast_Float": lambda x, *_: x.float(), "_cast_Long": lambda x, *_: x.long(), "_cast_Int": lambda x, *_: x.int(),
    "_infer_size": lambda a, b: list(torch.broadcast_shapes(a, b)), "result_type": torch.result_type,
    "norm": lambda x, *args, **named: torch.norm(x, *args, **named), "one_hot": F.one_hot, "split": _split,
    "expand": lambda x, size, *, implicit=False: x.expand(size), "is_floating_point": torch.is_floating_point,
    "lift": lambda x: x, "lift_fresh": lambda x: x, "detach_copy": lambda x: x.detach().clone(),
    "im2col": lambda x, kernel, dilation, padding, stride: F.unfold(x, kernel, dilation, padding, stride),
    "col2im": lambda x, size, kernel, dilation, padding, stride: F.fold(x, size, kernel, dilation, padding, stride),
    "thnn_conv2d": lambda x, weight, kernel, bias=None, stride=1, padding=0: F.conv2d(x, weight, bias, stride, padding),
    "contiguous": lambda x, memory_format=None: (
        x.contiguous() if memory_format is None else x.contiguous(memory_format=memory_format)
    ),
    "is_contiguous": lambda x, *_, **__: x.is_contiguous(),
    "warn": PLAIN["warn"],
}  # fmt: skip

OF_PRIM: dict[str, Callable[..., Any]] = {
    "NumToTensor": _number_to_tensor, "dtype": lambda x: number_of(x.dtype), "device": lambda x: x.device,
    "layout": lambda x: number_of(x.layout), "shape": lambda x: list(x.shape), "grad": lambda x: x.grad,
    "data": lambda x: x.data, "requires_grad": lambda x: x.requires_grad, "is_cuda": lambda x: x.is_cuda,
    "is_cpu": lambda x: x.device.type == "cpu", "is_meta": lambda x: x.device.type == "meta",
    "is_sparse": lambda x: x.is_sparse, "is_sparse_csr": lambda x: x.layout is torch.sparse_csr,
    "is_quantized": lambda x: x.is_quantized, "is_nested": lambda x: x.is_nested,
    **dict.fromkeys(("is_mkldnn", "is_mps", "is_vulkan", "is_xla", "is_xpu", "is_ipu", "is_maia", "is_mtia"),
                    lambda x: False),
    "itemsize": lambda x: x.itemsize, "nbytes": lambda x: x.nbytes, "name": lambda x: None,
    "tolist": lambda x, *_: x.tolist(), "ConstantChunk": lambda x, chunks, dim: list(torch.chunk(x, chunks, dim)),
}  # fmt: skip

# --- operators that meant something else in archives of an earlier version -------------------------------------------


def _old_rounding(*operands: Any) -> str | None:
    """How numbers and tensors were divided: integers as in C."""
    whole = all(
        not (v.is_floating_point() or v.is_complex()) if isinstance(v, Tensor) else isinstance(v, int) for v in operands
    )
    return "trunc" if whole else None


def _old_div(x: Any, other: Any, *, out: Tensor | None = None, **mode: Any) -> Any:
    if not isinstance(x, Tensor) and not isinstance(other, Tensor):
        return x / other
    given = (x, other) if out is None else (x, other, out)
    return torch.div(x, other, out=out, **(mode or {"rounding_mode": _old_rounding(*given)}))


def _old_div_(x: Tensor, other: Any, **mode: Any) -> Tensor:
    return x.div_(other, **(mode or {"rounding_mode": _old_rounding(x, other)}))


def _old_full(size: Any, value: Any, *, dtype: Any = None, out: Tensor | None = None, **options: Any) -> Tensor:
    """Without a dtype the result was of floats, whatever the value."""
    if out is not None:
        return torch.full(size, value, out=out)
    return torch.full(size, value if dtype is not None else float(value), **_options({"dtype": dtype, **options}))


def _old_linspace(start: Any, end: Any, steps: int | None = None, **options: Any) -> Tensor:
    return torch.linspace(start, end, 100 if steps is None else steps, **_options(options))


def _old_logspace(start: Any, end: Any, steps: int | None = None, base: float = 10.0, **options: Any) -> Tensor:
    return torch.logspace(start, end, 100 if steps is None else steps, base, **_options(options))


# The operator and the last version in which it meant that. (In version 9, `gelu` had no argument `approximate`.)
UPGRADED: dict[tuple[str, int], Callable[..., Any]] = {
    ("div", 3): _old_div, ("div_", 3): _old_div_, ("full", 4): _old_full, ("linspace", 7): _old_linspace,
    ("logspace", 8): _old_logspace,
}  # fmt: skip
