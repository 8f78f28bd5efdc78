"""`torch.autograd`: recording ops, and propagating gradients back through them."""

import os as _os
import sys as _sys
import typing as _typing
from types import ModuleType as _ModuleType

from tensorgrad.autograd import graph, node_attributes, tensor_fields
from tensorgrad.autograd.anomaly import detect_anomaly, set_detect_anomaly
from tensorgrad.autograd.grad_mode import (
    _force_original_view_tracking,
    is_multithreading_enabled,
    is_view_replay_enabled,
    set_multithreading_enabled,
)
from tensorgrad.autograd.gradients import backward, grad
from tensorgrad.autograd.modes import enable_grad, inference_mode, no_grad, set_grad_enabled
from tensorgrad.autograd.passes import is_checkpoint_valid as _is_checkpoint_valid
from tensorgrad.system.lazy_modules import later
from tensorgrad.system.names_elsewhere import elsewhere

__all__ = [
    "Function", "Variable", "backward", "detect_anomaly", "enable_grad", "forward_ad", "function", "functional", "grad",
    "grad_mode", "gradcheck", "gradgradcheck", "graph", "inference_mode", "no_grad", "profiler", "set_detect_anomaly",
    "set_grad_enabled", "set_multithreading_enabled",
]  # fmt: skip


# `functional`, `forward_ad` and `checking` need transforms, and `profiler` the package of that name: see there.
__path__.append(_os.path.join(_os.path.dirname(__path__[0]), "compat", "names", "autograd"))


def _from_checking(name: str):
    return getattr(_sys.modules[__name__].checking, name)


# As in PyTorch, `autograd.gradcheck` is the function, and `from torch.autograd.gradcheck import GradcheckError` works.
_sys.modules[f"{__name__}.gradcheck"] = _ModuleType(f"{__name__}.gradcheck")
_sys.modules[f"{__name__}.gradcheck"].__getattr__ = _from_checking


if _typing.TYPE_CHECKING:
    from tensorgrad.autograd import function, grad_mode
    from tensorgrad.autograd import variable as variable
    from tensorgrad.autograd.function import Function
    from tensorgrad.autograd.variable import Variable
    from tensorgrad.compat.names.autograd import forward_ad, functional, profiler
    from tensorgrad.compat.names.autograd.checking import gradcheck, gradgradcheck
else:
    later(
        __name__,
        ("node_calls", "checking", "edges", "engine", "forward_ad", "function", "functional", "hooks",
         "legacy_functions", "passes", "profiler", "saved_attributes", "saved_tensor_hooks", "tracebacks",
         "variable", "views"),
    )  # fmt: skip
    elsewhere(
        __name__,
        {
            "Function": "tensorgrad.autograd.function",
            "SavedTensor": "tensorgrad.autograd.saved_attributes",
            "Variable": "tensorgrad.autograd.variable",
            "_disable_profiler": "tensorgrad.profiler.recorder",
            "_profiler_enabled": "tensorgrad.profiler.recorder",
            "gradcheck": "tensorgrad.autograd.checking",  # the functions, as in PyTorch
            "gradgradcheck": "tensorgrad.autograd.checking",
            "kineto_available": "tensorgrad.profiler",
        },
    )
