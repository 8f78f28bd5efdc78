"""The functions of torch that tracing records as one step, and the names under which PyTorch prints them.

While something is traced, the functions in the modules below are replaced by ones that look for proxies among their
arguments (`patching.py`). Functions that PyTorch writes in Python pass all their options by keyword, as recorded there.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType
from typing import Any

import tensorgrad
from tensorgrad.overriding.caller_arguments import unpacked

# Functions of nn.functional that are compiled in PyTorch: recorded as they are called, and printed by other names.
_COMPILED = {
    "torch": """
        adaptive_avg_pool1d avg_pool1d bilinear celu_ channel_shuffle conv1d conv2d conv3d conv_tbc conv_transpose1d
        conv_transpose2d conv_transpose3d cosine_similarity hardshrink native_channel_shuffle pairwise_distance pdist
        pixel_shuffle pixel_unshuffle prelu relu_ rrelu_ selu_ threshold_
    """,
    "torch._C._nn": """
        avg_pool2d avg_pool3d elu_ gelu hardtanh_ leaky_relu_ linear logsigmoid one_hot scaled_dot_product_attention
        softplus softshrink
    """,
}
# Functions of torch that PyTorch writes in Python.
_IN_PYTHON = frozenset(
    [
        "atleast_1d",
        "atleast_2d",
        "atleast_3d",
        "block_diag",
        "broadcast_tensors",
        "cartesian_prod",
        "cdist",
        "chain_matmul",
        "einsum",
        "meshgrid",
        "norm",
        "split",
        "stft",
        "tensordot",
        "unique",
        "unique_consecutive",
        "unravel_index",
    ]
)
# Functions of nn.functional that PyTorch implements by a method of the tensor, which is what it records.
_BY_METHOD = frozenset(("sigmoid", "tanh"))
_MODULES = ("", "nn.functional", "linalg", "fft", "special")
# Functions of torch that do no arithmetic: they run, whatever they are given.
_NOT_RECORDED = frozenset(
    [
        "compile",
        "is_storage",
        "is_tensor",
        "load",
        "manual_seed",
        "save",
        "set_default_device",
        "set_default_dtype",
        "set_printoptions",
        "typename",
        "use_deterministic_algorithms",
        "vmap",
    ]
)
_OPTIONS = {"softmax": {"_stacklevel": 3}, "log_softmax": {"_stacklevel": 3}, "softmin": {"_stacklevel": 3}}


def modules() -> Iterator[tuple[str, ModuleType]]:
    """Yields the modules whose functions are recorded, with their PyTorch names."""
    for name in _MODULES:
        module = tensorgrad
        for part in name.split(".") if name else ():
            module = getattr(module, part)
        yield f"torch.{name}".rstrip("."), module


@functools.cache
def functions() -> dict[Callable, tuple[str, bool]]:
    """Returns the functions that are recorded: function -> (PyTorch's name of it, written in Python there)."""
    found: dict[Callable, tuple[str, bool]] = {}
    compiled = {name: prefix for prefix, names in _COMPILED.items() for name in names.split()}
    for prefix, module in modules():
        for name, value in list(vars(module).items()):
            hidden = name.startswith("_") and name != "_assert"
            if not isinstance(value, FunctionType) or hidden or name in _NOT_RECORDED:
                continue
            public = getattr(module, "__all__", None) if prefix in ("torch.linalg", "torch.fft") else None
            if public is not None and name not in public:
                continue
            if prefix == "torch":
                place = (f"torch.functional.{name}", True) if name in _IN_PYTHON else (f"torch.{name}", False)
            elif prefix == "torch.nn.functional":
                place = (f"{compiled[name]}.{name}", False) if name in compiled else (f"{prefix}.{name}", True)
            else:
                place = f"{prefix}.{name}", False
            found.setdefault(value, place)
    return found


def public_name(function: Any) -> str | None:
    """Returns PyTorch's name of one of its functions; None for any other.

    >>> from tensorgrad.fx.torch_functions import public_name
    >>> public_name(torch.nn.functional.relu), public_name(torch.nn.functional.gelu), public_name(len)
    ('torch.nn.functional.relu', 'torch._C._nn.gelu', None)
    """
    try:
        return functions().get(function, (None,))[0]
    except TypeError:  # not hashable
        return None


def node_name(function: Any, name: str) -> str:
    """Returns what a node that calls the function is called after: `linalg_norm`, as PyTorch's compiled function."""
    public = public_name(function) or ""
    room = public.split(".")[1:2]
    return f"{room[0]}_{name}" if room and room[0] in ("linalg", "fft", "special") else name


def as_recorded(function: Callable, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
    """Returns the arguments as PyTorch records them: functions that it writes in Python get options by keyword.

    >>> from tensorgrad.fx.torch_functions import as_recorded
    >>> as_recorded(torch.nn.functional.relu, (1,), {})
    ((1,), {'inplace': False})
    """
    if not functions().get(function, ("", False))[1]:
        return args, kwargs
    signature = inspect.signature(function)
    try:
        given = signature.bind(*args, **kwargs)
    except TypeError:
        return args, kwargs
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for p in signature.parameters.values():
        if p.kind is p.VAR_POSITIONAL:
            positional += unpacked(given.arguments.get(p.name, ()))
        elif p.kind is p.VAR_KEYWORD:
            named.update(given.arguments.get(p.name, {}))
        elif p.default is p.empty and p.kind is not p.KEYWORD_ONLY:
            if p.name in given.arguments:
                positional.append(given.arguments[p.name])
        else:
            named[p.name] = given.arguments.get(p.name, p.default)
    return tuple(positional), named
