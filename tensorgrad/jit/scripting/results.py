"""What the operators of a program return."""

from __future__ import annotations

import ast
import math

from tensorgrad import _ops
from tensorgrad.export.schemas import arguments_of
from tensorgrad.jit import operators
from tensorgrad.jit.scripting.errors import NotWritable
from tensorgrad.jit.scripting.types import (
    BOOL,
    COMPLEX,
    DEVICE,
    FLOAT,
    INT,
    NONE,
    NUMBER,
    STR,
    TENSOR,
    Type,
    list_of,
    tuple_of,
    within,
)  # fmt: skip

TENSORS, INTS, STRINGS = list_of(TENSOR), list_of(INT), list_of(STR)
_OF_TENSORS: dict[Type, str] = {
    tuple_of(TENSOR, TENSOR): """
        _pack_padded_sequence _pad_packed_sequence adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d aminmax
        cummax cummin fractional_max_pool2d fractional_max_pool3d geqrf gru kthvalue linalg_eig linalg_eigh
        linalg_inv_ex linalg_ldl_factor linalg_lu_factor linalg_qr linalg_slogdet lstm_cell max_pool1d_with_indices
        max_pool2d_with_indices max_pool3d_with_indices mode
        native_dropout qr rnn_relu rnn_tanh slogdet std_mean topk triangular_solve var_mean sort frexp""",
    tuple_of(TENSOR, TENSOR, TENSOR): """
        _unique2 linalg_svd lstm lu_unpack native_batch_norm native_group_norm native_layer_norm svd unique_consecutive
        unique_dim""",
    tuple_of(TENSOR, TENSOR, TENSOR, TENSOR): "embedding_bag linalg_lstsq",
    BOOL: """
        allclose can_cast equal is_coalesced is_complex is_conj is_contiguous is_floating_point is_grad_enabled
        is_inference is_neg is_nonzero is_pinned is_same_size is_signed Bool""",
    TENSORS: """
        broadcast_tensors chunk dsplit gradient hsplit meshgrid nonzero_numpy split split_with_sizes tensor_split unbind
        unsafe_chunk unsafe_split unsafe_split_with_sizes vsplit""",
    INT: "dense_dim dim element_size get_device initial_seed numel promote_types result_type sparse_dim storage_offset",
    NUMBER: "item",
    NONE: "set_grad_enabled",
    INTS: "size stride",
}  # fmt: skip
OF_TENSORS = {name: kind for kind, names in _OF_TENSORS.items() for name in names.split()}
PROPERTIES: dict[str, tuple[str, Type]] = {
    "shape": ("torch.size", INTS), "dtype": ("ops.prim.dtype", INT), "device": ("ops.prim.device", DEVICE),
    "layout": ("ops.prim.layout", INT), "ndim": ("torch.dim", INT), "T": ("torch.numpy_T", TENSOR),
    "mT": ("torch.mT", TENSOR), "mH": ("torch.mH", TENSOR), "H": ("torch.matrix_H", TENSOR),
    "is_cuda": ("ops.prim.is_cuda", BOOL), "is_sparse": ("ops.prim.is_sparse", BOOL),
    "requires_grad": ("ops.prim.requires_grad", BOOL), "data": ("ops.prim.data", TENSOR),
    "is_quantized": ("ops.prim.is_quantized", BOOL), "real": ("torch.real", TENSOR), "imag": ("torch.imag", TENSOR),
    "is_leaf": ("torch.is_leaf", BOOL), "nbytes": ("ops.prim.nbytes", INT), "itemsize": ("ops.prim.itemsize", INT),
}  # fmt: skip
# Functions that ask what the program runs as, and what they return in a program.
MODES = {
    "is_scripting": True, "is_tracing": False, "_is_tracing": False, "_get_tracing_state": False,
    "is_compiling": False, "is_exporting": False,
}  # fmt: skip
# Operators that take all numbers that follow as one list.
VARARGS = frozenset(
    ("view", "reshape", "permute", "repeat", "expand", "flip", "tile", "zeros", "ones", "empty", "rand", "randn",
     "new_zeros", "new_ones", "new_empty", "unsafe_view")
)  # fmt: skip
_OF_STRINGS: dict[Type, str] = {
    STR: """
        capitalize center expandtabs ljust lower lstrip replace rjust rstrip strip swapcase title upper zfill format
        join""",
    STRINGS: "split rsplit splitlines partition rpartition",
    INT: "find rfind index rindex count",
    BOOL: """
        endswith startswith isalnum isalpha isdecimal isdigit isidentifier islower isnumeric isprintable isspace istitle
        isupper""",
}  # fmt: skip
OF_STRINGS = {name: kind for kind, names in _OF_STRINGS.items() for name in names.split()}
MATH: dict[str, Type] = {
    **dict.fromkeys(("floor", "ceil", "gcd", "factorial", "trunc"), INT),
    **dict.fromkeys(("isnan", "isinf", "isfinite"), BOOL),
    **dict.fromkeys(
        ("sqrt", "exp", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "atan2",
         "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "degrees", "radians", "erf", "erfc", "gamma", "lgamma",
         "copysign", "fabs", "fmod", "hypot", "pow"), FLOAT),
}  # fmt: skip
OPERATORS = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.FloorDiv: "floordiv", ast.Mod: "remainder",
    ast.Pow: "pow", ast.BitAnd: "__and__", ast.BitOr: "__or__", ast.BitXor: "__xor__", ast.LShift: "__lshift__",
    ast.RShift: "__rshift__", ast.MatMult: "matmul",
}  # fmt: skip
NAMES = {getattr(math, name): name for name in MATH}


def of_tensors(name: str, args: list[Type], named: dict[str, Type]) -> Type | None:
    """What an operator on tensors returns; None if there is no such operator."""
    if operators.on_tensors(name) is None:
        return None
    if name in ("size", "stride") and (args[1:] or named):
        return INT
    if name in ("max", "min", "median", "nanmedian") and (args[1:] or "dim" in named):
        second = args[1] if args[1:] else named["dim"]
        return TENSOR if second == TENSOR else tuple_of(TENSOR, TENSOR)
    if name == "where" and len(args) == 1:
        return TENSORS
    if name in ("atleast_1d", "atleast_2d", "atleast_3d") and args and args[0].name == "List":
        return TENSORS
    return OF_TENSORS.get(name, TENSOR)


TEXTS = frozenset(
    ("approximate", "equation", "indexing", "mode", "pad_mode", "padding", "reduce", "rounding_mode", "side")
)


def check(name: str, args: list[Type], named: dict[str, Type]) -> None:
    """Looks whether PyTorch's operator takes such arguments. Raises: NotWritable."""
    forms = []
    for overload in _ops._overloads().get(name) or ("",):
        try:
            forms.append(arguments_of(f"{name}.{overload}" if overload else name))
        except KeyError:
            continue
    if not forms:
        return  # it is not in the table
    for form in forms:
        given = dict(zip(form, args, strict=False)) | named
        texts = [n for n, kind in given.items() if kind == STR]
        if len(args) <= len(form) and set(named) <= set(form) | {"dtype"} and set(texts) <= TEXTS:
            return
    raise NotWritable(f"the operator {name} does not take these arguments")


def of_container(kind: Type, name: str, args: list[Type]) -> Type | None:
    """What a method of a list or dict returns; None if there is no such method."""
    part = kind.parts[-1]
    if kind.name == "List":
        found = {
            "append": NONE, "extend": NONE, "insert": NONE, "remove": NONE, "reverse": NONE, "clear": NONE,
            "sort": NONE, "copy": kind, "pop": part, "index": INT, "count": INT,
        }  # fmt: skip
        return found.get(name)
    key = kind.parts[0]
    found = {
        "keys": list_of(key), "values": list_of(part), "items": list_of(tuple_of(key, part)), "pop": part,
        "get": part if len(args) > 1 else Type("Optional", (within(part),)), "setdefault": part, "update": NONE,
        "clear": NONE, "copy": kind, "popitem": tuple_of(key, part),
    }  # fmt: skip
    return found.get(name)


def arithmetic(name: str, one: Type, other: Type) -> Type | None:
    """What `one + other`, or another operation of numbers, strings and lists, returns."""
    names = {one.name, other.name}
    numbers = {"int", "float", "complex", "bool", "number"}
    if TENSOR in (one, other):
        return TENSOR if names <= numbers | {"Tensor"} else None
    if names <= numbers:
        if name == "pow" and names == {"int"}:
            return FLOAT
        if name == "div":
            return COMPLEX if "complex" in names else NUMBER if "number" in names else FLOAT
        for kind in (NUMBER, COMPLEX, FLOAT):
            if kind.name in names:
                return kind
        return INT
    if name == "add" and one == other and one.name in ("str", "List"):
        return one
    if name == "mul" and one.name == "List" and other == INT:
        return one
    if name == "mul" and other.name == "List" and one == INT:
        return other
    return None
