"""Classes of tensors with a `__torch_dispatch__`: it is given the operators of PyTorch's registry that a call runs.

A call with a tensor of such a class first asks its `__torch_function__`, as for every class. What that lets through
arrives here as a function of torch or a method, and is passed on as the operator of that name with its arguments in the
registry's form: `x[0]` as `aten.select.int(x, 0, 0)`, `x.float()` as `aten._to_copy.default(x, dtype=torch.float32)`.
Functions that PyTorch makes of others (`MADE_OF_OTHERS`), or that are no operators, run, and the class sees these
others.

Autograd does not record what such a class computes: it has the class's tensors in its hands, not what is in them. The
operators that the class itself calls, on other tensors, are recorded as ever.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorgrad
from tensorgrad._ops import OpOverload, OpOverloadPacket, ops
from tensorgrad.autograd.modes import is_grad_enabled, no_grad
from tensorgrad.dispatch.asking import asking
from tensorgrad.dispatch.other_classes import as_called
from tensorgrad.dispatch.switches import DISPATCH
from tensorgrad.nn.compiled import _parse_to
from tensorgrad.tensor import Tensor, tensors_in

# Operators that PyTorch makes of others, and functions that are no operators: a class sees what they call.
_OTHERS = """
    absolute absolute_ adaptive_avg_pool1d adaptive_max_pool1d adjoint alpha_dropout alpha_dropout_ arccos arccos_
    arccosh arccosh_ arcsin arcsin_ arcsinh arcsinh_ arctan arctan2 arctan2_ arctan_ arctanh arctanh_ argsort
    argwhere atleast_1d atleast_2d atleast_3d avg_pool1d batch_norm bilinear broadcast_tensors broadcast_to
    cartesian_prod cdist chain_matmul chunk clip clip_ column_stack combinations concat concatenate conj
    conj_physical contiguous conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d corrcoef
    cosine_embedding_loss cosine_similarity cov cross ctc_loss cumulative_trapezoid det diag diagflat diff dim
    divide divide_ dropout dropout_ dsplit dstack einsum embedding_bag expand_as feature_alpha_dropout
    feature_alpha_dropout_ feature_dropout feature_dropout_ fill_diagonal_ fix fix_ flatten fliplr flipud
    float_power float_power_ frobenius_norm ger get_device gradient greater greater_ greater_equal greater_equal_
    grid_sampler group_norm gru gru_cell hinge_embedding_loss histogramdd hsplit hstack imag inner instance_norm
    inverse is_complex is_conj is_contiguous is_distributed is_floating_point is_inference is_neg is_nonzero
    is_signed isclose isfinite isreal item kl_div kron layer_norm less less_ less_equal less_equal_ logdet lstm
    lstm_cell lu_solve margin_ranking_loss matrix_exp matrix_power max_pool1d max_pool1d_with_indices max_pool2d
    max_pool3d meshgrid moveaxis movedim msort multiply multiply_ nanmean nanquantile narrow native_channel_shuffle
    negative negative_ norm_except_dim not_equal not_equal_ nuclear_norm numel one_hot orgqr outer pairwise_distance
    pdist pinverse poisson_nll_loss positive prelu qr quantile ravel real requires_grad_ reshape reshape_as
    resolve_conj resolve_neg result_type retain_grad rms_norm rnn_relu rnn_relu_cell rnn_tanh rnn_tanh_cell
    row_stack rrelu rrelu_ scaled_dot_product_attention selu selu_ size slogdet square square_ storage_offset stride
    subtract subtract_ sum_to_size svd swapaxes swapaxes_ swapdims swapdims_ take_along_dim tensor_split tensordot
    tile trapezoid trapz triplet_margin_loss true_divide true_divide_ type_as unflatten unsafe_chunk vander view_as
    vsplit vstack
"""
MADE_OF_OTHERS = frozenset(_OTHERS.split())

# Methods that take several numbers where the operator takes a list.
_LISTS = frozenset(("expand", "flip", "new_empty", "new_ones", "new_zeros", "permute", "repeat", "view"))
# Operators that reduce several dimensions: a number stands for one.
_DIMS = frozenset(("amax", "amin", "flip", "logsumexp", "mean", "nanmean", "nansum", "norm", "std", "sum", "var"))
# Operators for whose second argument a number stands in the place of a tensor.
_NUMBERS_AS_TENSORS = frozenset(("add", "add_", "div", "div_", "mul", "mul_", "sub", "sub_", "true_divide"))
_CASTS = {
    "bfloat16": "bfloat16", "bool": "bool", "byte": "uint8", "char": "int8", "double": "float64", "float": "float32",
    "half": "float16", "int": "int32", "long": "int64", "short": "int16",
}  # fmt: skip


def see(cls: type) -> None:
    """Called with every class that has a `__torch_dispatch__`: from the first one on, calls look for them."""
    if not DISPATCH:
        DISPATCH.append(dispatch)
    for name in ("__deepcopy__", "__iter__"):
        if getattr(cls, name) is getattr(Tensor, name):
            setattr(cls, name, asking(getattr(Tensor, name)))
    if cls.data is Tensor.data:  # type: ignore[attr-defined]
        cls.data = property(lambda self: self.detach(), None, None, Tensor.data.__doc__)  # type: ignore[attr-defined]


def dispatches(value: Any) -> bool:
    """Returns whether the class of a value has a `__torch_dispatch__`."""
    return isinstance(value, Tensor) and hasattr(type(value), "__torch_dispatch__")


def dispatch(function: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
    """Calls the `__torch_dispatch__` of the arguments' classes in place of a function.

    Returns:
        What it returns; `NotImplemented` if there is no such class, or the function is made of others.

    Raises:
        NotImplementedError: If a tensor of such a class requires grad, and gradients are recorded; or if the function
            is neither an operator nor made of some.
        TypeError: If all classes decline.
    """
    if not any(dispatches(t) for t in tensors_in((*args, *kwargs.values()))):
        return NotImplemented
    row = getattr(function, "op", None)
    if isinstance(function, OpOverload):
        name = function.overloadpacket.__name__
        if function.namespace != "aten" or not (name in MADE_OF_OTHERS or name == "to"):
            return call(function, args, kwargs)
    elif isinstance(function, OpOverloadPacket):
        name, row = function.__name__, None
    else:
        name = function.__name__ if row is None else row.name
        args, kwargs = as_called(function, args, kwargs)
    special = (FUNCTIONS if row is None or isinstance(function, OpOverload) else ROWS).get(name)
    if special is not None:
        return special(*args, **kwargs)
    if name not in MADE_OF_OTHERS and hasattr(ops.aten, name):
        args = _listed(name, args)
        if name == "sort" and kwargs.get("stable") is not None:
            args, kwargs = args[:1], {**dict(zip(("dim", "descending"), args[1:], strict=False)), **kwargs}
        return call(_overload(name, args, kwargs), args, kwargs)
    if row is None or isinstance(function, OpOverload):
        return NotImplemented
    if row.twin is not None:
        return row.twin(*_all_arguments(row, args, kwargs))
    raise NotImplementedError(f"{row.name}: not an operator of PyTorch's registry, so no __torch_dispatch__ is called")


def call(operator: OpOverload, args: tuple, kwargs: dict[str, Any]) -> Any:
    """Calls the classes' `__torch_dispatch__` with an operator; of two, the subclass first.

    Raises:
        NotImplementedError: If a tensor of such a class requires grad, and gradients are recorded.
        TypeError: If all decline.
    """
    found = [t for t in tensors_in((*args, *kwargs.values())) if dispatches(t)]
    if is_grad_enabled() and operator.overloadpacket.__name__ not in ("alias", "detach", "detach_"):
        for tensor in found:
            if tensor.requires_grad:
                raise NotImplementedError(
                    f"{operator}: a tensor of class {type(tensor).__name__} requires grad, and gradients are not "
                    "recorded of what a __torch_dispatch__ computes; use torch.no_grad(), or torch.autograd.Function"
                )
    types = tuple(sorted({type(t): None for t in found}, key=lambda cls: -len(cls.__mro__)))
    for cls in types:
        result = cls.__torch_dispatch__(operator, types, args, kwargs)
        if result is not NotImplemented:
            return args[0] if _writes(operator.overloadpacket.__name__) else result
    raise TypeError(
        f"Multiple dispatch failed for 'torch._ops.{operator}'; all __torch_dispatch__ handlers returned "
        "NotImplemented:\n\n" + "\n".join(f"  - tensor subclass {cls!r}" for cls in types)
    )


def _writes(name: str) -> bool:
    return name[-1] == "_" and name[-2:] != "__"


def _all_arguments(row: Any, args: tuple, kwargs: dict[str, Any]) -> list[Any]:
    """The arguments of a row in its order, those left out among them."""
    names, function = [p.name for p in row.params], row.compiled.call
    positional = [p.name for p in row.params if not p.keyword]
    defaults = dict(zip(reversed(positional), reversed(function.__defaults__ or ()), strict=False))
    given = {**defaults, **(function.__kwdefaults__ or {}), **dict(zip(names, args, strict=False)), **kwargs}
    return [given[name] for name in names]


def _listed(name: str, args: tuple) -> tuple:
    """Arguments with lists where the registry has them: `[1, 0]` for `x.permute(1, 0)`, `[1]` for `x.sum(1)`."""
    if name in _LISTS and len(args) > 1 and isinstance(args[1], int):
        args = (args[0], args[1:])
    if name in _DIMS and len(args) > 1 and isinstance(args[1], int) and not isinstance(args[1], bool):
        args = (args[0], [args[1]], *args[2:])
    return tuple(
        list(value) if isinstance(value, tuple) and value and all(isinstance(n, int) for n in value) else value
        for value in args
    )


def _overload(name: str, args: tuple, kwargs: dict[str, Any]) -> OpOverload:
    """The overload of an operator that fits the arguments."""
    packet = getattr(ops.aten, name)
    known = packet.overloads()
    second = args[1] if len(args) > 1 else kwargs.get("other", kwargs.get("exponent"))
    three = (args[0] if args else None, second, args[2] if len(args) > 2 else kwargs.get("value"))
    tensors = ["Tensor" if isinstance(value, Tensor) else "Scalar" for value in three]
    has_dim = kwargs.get("dim", second) is not None
    wanted = [
        "out" if kwargs.get("out") is not None else "",
        "self" if name == "where" and len(args) == 3 else "",
        "default" if name == "copy_" else "",
        "Tensor_mode" if kwargs.get("rounding_mode") is not None else "",
        "float" if name == "bernoulli_" and isinstance(second, float) else "",
        {2: "to", 3: "from"}.get(len(args), "") if name == "random_" else "",
        "correction" if name in ("std", "std_mean", "var", "var_mean") else "",
        "stable" if kwargs.get("stable") is not None else "",
        "_".join(tensors[:2]),
        tensors[2] if name.removesuffix("_") in ("masked_fill", "index_fill", "lerp") else "",
        "Scalar" if tensors[0] == "Scalar" and "Tensor_Scalar" in known else "",
        "Tensor" if tensors[1] == "Tensor" or name in _NUMBERS_AS_TENSORS else "Scalar",
        "dims" if has_dim and isinstance(kwargs.get("dim", second), tuple | list) else "",
        *(["dim", "dim_int", "dim_IntList"] if has_dim and not isinstance(second, Tensor) else []),
        "other" if isinstance(second, Tensor) else "",
        "dtype" if isinstance(second, tensorgrad.dtype) else "",
        "default",
    ]
    return getattr(packet, next((overload for overload in wanted if overload in known), known[0]))


# --- what PyTorch's methods in C++ make of their arguments ---


def _getitem(self: Tensor, indices: Any) -> Any:
    """`self[indices]` by the operators for it, one after the other."""
    aten, dim, late = ops.aten, 0, []
    given = list(indices) if isinstance(indices, tuple) else [indices]
    taken = sum(_dimensions(index) for index in given)
    if not any(index is Ellipsis for index in given):
        given.append(Ellipsis)
    result: Any = self
    for index in given:
        if index is Ellipsis:
            dim += self.ndim - taken
        elif index is None:
            result, dim = aten.unsqueeze.default(result, dim), dim + 1
        elif isinstance(index, slice):
            start, stop, step = index.indices(result.shape[dim])
            if step < 1:
                raise ValueError("step must be greater than zero")
            if (start, step) != (0, 1) or stop < result.shape[dim]:
                late_step = () if step == 1 else (step,)
                result = aten.slice.Tensor(result, dim, start, max(stop, start), *late_step)
            dim += 1
        elif isinstance(index, int) and not isinstance(index, bool):
            result = aten.select.int(result, dim, index)
        else:
            late += [(dim, index if isinstance(index, Tensor) else tensorgrad.as_tensor(index))]
            dim += _dimensions(index)
    if late:
        places: list[Any] = [None] * (late[-1][0] + 1)
        for place, index in late:
            places[place] = index
        return aten.index.Tensor(result, places)
    return aten.alias.default(result) if result is self else result


def _dimensions(index: Any) -> int:
    """How many dimensions of a tensor an index takes."""
    if index is None or index is Ellipsis:
        return 0
    mask = isinstance(index, Tensor) and index.dtype in (tensorgrad.bool, tensorgrad.uint8)
    return index.ndim if mask else 1


def _setitem(self: Tensor, indices: Any, value: Any) -> None:
    """`self[indices] = value`: where the indices are a view, its values are written."""
    given = indices if isinstance(indices, tuple) else (indices,)
    value = value if isinstance(value, Tensor) else tensorgrad.as_tensor(value, dtype=self.dtype)
    if any(isinstance(index, Tensor | list | bool) for index in given):
        places = [index if isinstance(index, Tensor) else tensorgrad.as_tensor(index) for index in given]
        ops.aten.index_put_.default(self, places, value)
    else:
        ops.aten.copy_.default(_getitem(self, indices), value)


def _to(self: Tensor, *args: Any, copy: bool = False, layout: Any = None, **kwargs: Any) -> Any:
    if args and isinstance(args[0], Tensor):
        args = (args[0].device, args[0].dtype, *args[1:])
    device, dtype, non_blocking, memory_format = _parse_to(*args, **kwargs)
    same = dtype in (None, self.dtype) and device in (None, self.device) and memory_format is None
    if same and not copy:
        return self
    told = {"dtype": dtype, "device": device, "non_blocking": non_blocking or None, "memory_format": memory_format}
    return ops.aten._to_copy.default(self, **{name: value for name, value in told.items() if value is not None})


def _index(self: Tensor, indices: Any, pattern: Any) -> Any:
    return ops.aten.index.Tensor(self, [None if place is None else indices[place] for place in pattern])


def _split(self: Tensor, split_size_or_sections: Any, dim: int = 0) -> Any:
    how, late = split_size_or_sections, () if dim == 0 else (dim,)
    if isinstance(how, int):
        return ops.aten.split.Tensor(self, how, *late)
    return ops.aten.split_with_sizes.default(self, list(how), *late)


def _embedding(input: Tensor, weight: Tensor, padding_idx: Any = None, *more: Any, **kwargs: Any) -> Any:
    if more or any(value is not None for value in kwargs.values()):
        return NotImplemented
    return ops.aten.embedding.default(weight, input, *(() if padding_idx is None else (padding_idx,)))


def _deepcopy(self: Tensor, memo: dict) -> Any:
    if id(self) not in memo:
        with no_grad():
            memo[id(self)] = ops.aten.clone.default(self).requires_grad_(self.requires_grad)
        if getattr(self, "_is_param", False):
            memo[id(self)]._is_param = True
    return memo[id(self)]


def _matmul(input: Tensor, other: Tensor) -> Any:
    form = {(2, 2): ops.aten.mm, (2, 1): ops.aten.mv, (1, 1): ops.aten.dot}.get((input.ndim, other.ndim))
    return call((form or ops.aten.matmul).default, (input, other), {})


def _linear(input: Tensor, weight: Tensor, bias: Any = None) -> Any:
    if input.ndim != 2:
        return call(ops.aten.linear.default, (input, weight) if bias is None else (input, weight, bias), {})
    if bias is None:
        return ops.aten.mm.default(input, ops.aten.t.default(weight))
    return ops.aten.addmm.default(bias, input, ops.aten.t.default(weight))


def _relu(input: Tensor, inplace: bool = False) -> Any:
    return (ops.aten.relu_ if inplace else ops.aten.relu).default(input)


# What users call, and how the registry writes it.
FUNCTIONS: dict[str, Callable] = {
    "__deepcopy__": _deepcopy,
    "__iter__": lambda self: iter(ops.aten.unbind.int(self)),
    "_getitem": _getitem,
    "_setitem": _setitem,
    "_split_method": _split,
    "cpu": lambda self, *args, **kwargs: _to(self, "cpu"),
    "cuda": lambda self, device=None, **kwargs: _to(self, "cuda" if device is None else device),
    "embedding": _embedding,
    "pin_memory": lambda self, device=None: ops.aten._pin_memory.default(self),
    "relu": _relu,
    "split": _split,
    "to": _to,
    "type_as": lambda self, other: _to(self, other.device, other.dtype),
    **{
        name: lambda self, _dtype=dtype, **kwargs: _to(self, getattr(tensorgrad, _dtype))
        for name, dtype in _CASTS.items()
    },
}

# Rows that have a form of their own, and how the registry writes them.
ROWS: dict[str, Callable] = {
    "clone_copy": lambda self, *args, **kwargs: ops.aten.clone.default(self),
    "index": _index,
    "linear": _linear,
    "matmul": _matmul,
    "new_axes": _getitem,
    "select": _getitem,
    "slice": _getitem,
    "softmax_": lambda self, dim: ops.aten.softmax.int(self, dim),
    "split": lambda self, dim, sizes: _split(self, sizes, dim),
    "split_with_sizes": lambda self, dim, sizes: _split(self, sizes, dim),
    "squeeze": lambda self, dims: ops.aten.squeeze.dims(self, list(dims)),
    "squeeze_dims": lambda self, dims: ops.aten.squeeze.dims(self, list(dims)),
    "std_": lambda self, dim, correction, keepdim: ops.aten.std.correction(
        self, dim, correction=correction, keepdim=keepdim
    ),
    "to_copy": lambda self, dtype: _to(self, dtype, copy=True),
    "var_": lambda self, dim, correction, keepdim: ops.aten.var.correction(
        self, dim, correction=correction, keepdim=keepdim
    ),
    "vector_norm_": lambda self, ord, dim, keepdim, dtype=None: ops.aten.linalg_vector_norm.default(
        self, ord, dim, keepdim, **({} if dtype is None else {"dtype": dtype})
    ),
}
