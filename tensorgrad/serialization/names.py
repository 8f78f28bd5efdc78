"""Translates the names of this library's classes and functions to PyTorch's, under which files refer to them.

PyTorch names a class after the file that defines it. Most files of tensorgrad have the same names as PyTorch's; the
exceptions are listed here.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
from types import FunctionType
from typing import Any

from tensorgrad.serialization.tables import Global, named

# Modules of tensorgrad whose contents PyTorch has in another module. (The contents of `nn` are in `nn.modules` there.)
_MODULES = {
    **dict.fromkeys(
        ("compiler", "devices", "dtypes", "info", "layouts", "printing", "settings", "size", "symbolic", "tensor"), ""
    ),
    "autograd.anomaly": "autograd.anomaly_mode", "autograd.checking": "autograd.gradcheck",
    "autograd.edges": "autograd.graph", "autograd.legacy_functions": "autograd.function",
    "autograd.saved_tensor_hooks": "autograd.graph",
    "autograd.gradients": "autograd", "autograd.hooks": "autograd.graph", "autograd.modes": "autograd.grad_mode",
    "cuda.amp": "cuda.amp", "cuda.devices": "cuda", "cuda.queries": "cuda", "cuda.streams": "cuda",
    "func.vmap": "func", "func.derivatives": "func", "func.forward": "func", "func.modules": "func",
    "func.utilities": "func",
    "nn.attention": "nn.modules.activation", "nn.embedding_bag": "nn.modules.sparse",
    "nn.functional": "nn.functional", "nn.functional_attention": "nn.functional", "nn.grad": "nn.grad",
    "nn.flatten": "nn.modules.flatten", "nn.init": "nn.init", "nn.linear_cross_entropy": "nn.modules.loss",
    "nn.parallel.data_parallel": "nn.parallel.data_parallel", "nn.parallel.distributed": "nn.parallel.distributed",
    "nn.parameter": "nn.parameter", "nn.rnn_cell": "nn.modules.rnn", "nn.uninitialized": "nn.parameter",
    "distributions.combined_transforms": "distributions.transforms",
    "distributions.transform": "distributions.transforms",
    "ops.random.states": "random", "random.default_generators": "random",
    "optim._adafactor": "optim", "optim._muon": "optim", "utils.data.collate": "utils.data._utils.collate",
    "utils.data.worker": "utils.data._utils.worker",
    **dict.fromkeys(
        (f"optim.lr_scheduler.{file}" for file in ("base", "chainable", "combined", "cosine", "cycle", "plateau")),
        "optim.lr_scheduler",
    ),
}  # fmt: skip
# Exceptions for single names.
_NAMES = {
    "nn.batchnorm": {f"InstanceNorm{n}d": "nn.modules.instancenorm" for n in (1, 2, 3)},
    "nn.attention": {"NonDynamicallyQuantizableLinear": "nn.modules.linear"},
    "nn.flatten": {
        "ChannelShuffle": "nn.modules.channelshuffle", "PixelShuffle": "nn.modules.pixelshuffle",
        "PixelUnshuffle": "nn.modules.pixelshuffle",
    },
    "nn.lazy": {
        "LazyLinear": "nn.modules.linear",
        **{f"LazyBatchNorm{n}d": "nn.modules.batchnorm" for n in (1, 2, 3)},
        **{f"LazyInstanceNorm{n}d": "nn.modules.instancenorm" for n in (1, 2, 3)},
        **{f"LazyConv{kind}{n}d": "nn.modules.conv" for kind in ("", "Transpose") for n in (1, 2, 3)},
    },
    "nn.linear_cross_entropy": {
        "LinearCrossEntropyOptions": "nn.modules.linear_cross_entropy_options", "linear_cross_entropy": "nn.functional",
    },
    "autograd.handles": {"RemovableHandle": "utils.hooks"},
    "random.generator": {"Generator": "_C"},
    "nn.module_state": {"_WrappedHook": "nn.modules.module"},
}  # fmt: skip


def pytorch_name(obj: Any) -> Global | None:
    """Returns PyTorch's name of one of this library's classes or functions; None for anything else.

    >>> from tensorgrad import nn
    >>> from tensorgrad.serialization.names import pytorch_name
    >>> print(pytorch_name(nn.Linear))
    torch.nn.modules.linear.Linear
    """
    module, _, path = (getattr(obj, "__module__", None) or "").partition(".")
    name = getattr(obj, "__qualname__", "")
    if module != "tensorgrad" or not isinstance(obj, type | FunctionType) or not name.isidentifier():
        return None
    target = _NAMES.get(path, {}).get(name, _MODULES.get(path))
    if target is None:
        package, _, file = path.partition(".")
        if package == "ops":
            target = ""
        else:
            target = f"nn.modules.{file}" if package == "nn" and file and "." not in file else path
    try:
        found = pytorch_thing(target.split(".") if target else [], name)
    except AttributeError:
        return None
    return named(f"torch.{target}".rstrip("."), name) if found is obj else None


def pytorch_thing(path: list[str], name: str) -> Any:
    """Returns the object for a name in `torch.a.b`: it is in that module or in a parent package.

    Raises: AttributeError if tensorgrad does not have it.
    """
    for length in range(len(path), min(len(path), 1) - 1, -1):
        with contextlib.suppress(ImportError):
            module = importlib.import_module(".".join(["tensorgrad", *path[:length]]))
            for inside in (path[length:], []):
                with contextlib.suppress(AttributeError):
                    return functools.reduce(getattr, [*inside, *name.split(".")], module)
    raise AttributeError(f"the file refers to torch.{'.'.join([*path, name])}, which tensorgrad does not have")
