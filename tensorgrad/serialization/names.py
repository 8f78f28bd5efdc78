"""Under which names files call this library's classes and functions: PyTorch's, which are found again here and there.

PyTorch names a class after the file that defines it. Most files of tensorgrad are called as PyTorch's; where the
others' names belong is written here.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
from types import FunctionType
from typing import Any

from tensorgrad.serialization.tables import Global, named

# Modules of tensorgrad whose names PyTorch has in another module. (What is in `nn` is in `nn.modules` there.)
_MODULES = {
    **dict.fromkeys(
        ("compiler", "devices", "dtypes", "info", "layouts", "printing", "settings", "size", "symbolic", "tensor"), ""
    ),
    "autograd.anomaly": "autograd.anomaly_mode", "autograd.checking": "autograd.gradcheck",
    "autograd.edges": "autograd.graph", "autograd.once": "autograd.function", "autograd.saving": "autograd.graph",
    "autograd.gradients": "autograd", "autograd.hooks": "autograd.graph", "autograd.modes": "autograd.grad_mode",
    "cuda.amp": "cuda.amp", "cuda.devices": "cuda", "cuda.queries": "cuda", "cuda.streams": "cuda",
    "func.batching": "func", "func.derivatives": "func", "func.modules": "func", "func.others": "func",
    "nn.attention": "nn.modules.activation", "nn.embedding_bag": "nn.modules.sparse",
    "nn.functional": "nn.functional", "nn.functional_attention": "nn.functional", "nn.grad": "nn.grad",
    "nn.flatten": "nn.modules.flatten", "nn.init": "nn.init", "nn.linear_cross_entropy": "nn.modules.loss",
    "nn.parallel": "nn.parallel.data_parallel",
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
# Single names of which PyTorch has its own opinion.
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
    "nn.parallel": {"DistributedDataParallel": "nn.parallel.distributed"},
    "autograd.handles": {"RemovableHandle": "utils.hooks"},
    "random.generator": {"Generator": "_C"},
    "nn.module_state": {"_WrappedHook": "nn.modules.module"},
}  # fmt: skip


def pytorch_name(obj: Any) -> Global | None:
    """PyTorch's name of one of this library's classes or functions; None for what is not of this library.

    >>> from tensorgrad import nn
    >>> from tensorgrad.serialization.names import pytorch_name
    >>> print(pytorch_name(nn.Linear))
    torch.nn.modules.linear.Linear
    """
    module, _, path = (getattr(obj, "__module__", None) or "").partition(".")
    name = getattr(obj, "__qualname__", "")
    if module != "tensorgrad" or not isinstance(obj, type | FunctionType) or not name.isidentifier():
        return None
    place = _NAMES.get(path, {}).get(name, _MODULES.get(path))
    if place is None:
        package, _, file = path.partition(".")
        if package == "ops":
            place = ""
        else:
            place = f"nn.modules.{file}" if package == "nn" and file and "." not in file else path
    try:
        found = pytorch_thing(place.split(".") if place else [], name)
    except AttributeError:
        return None
    return named(f"torch.{place}".rstrip("."), name) if found is obj else None


def pytorch_thing(path: list[str], name: str) -> Any:
    """What a name in `torch.a.b` means here: it is in that module or in a package above.

    Raises: AttributeError for names that are not here.
    """
    for length in range(len(path), min(len(path), 1) - 1, -1):
        with contextlib.suppress(ImportError):
            module = importlib.import_module(".".join(["tensorgrad", *path[:length]]))
            for inside in (path[length:], []):
                with contextlib.suppress(AttributeError):
                    return functools.reduce(getattr, [*inside, *name.split(".")], module)
    raise AttributeError(f"the file asks for torch.{'.'.join([*path, name])}, which tensorgrad does not have")
