"""`torch.autograd`: recording ops, and propagating gradients back through them."""

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
from tensorgrad.system.lazy_modules import later, whole

__all__ = [
    "Function", "Variable", "backward", "detect_anomaly", "enable_grad", "forward_ad", "function", "functional", "grad",
    "grad_mode", "gradcheck", "gradgradcheck", "graph", "inference_mode", "no_grad", "profiler", "set_detect_anomaly",
    "set_grad_enabled", "set_multithreading_enabled",
]  # fmt: skip


def _from_checking(name: str):
    return getattr(_sys.modules[__name__].checking, name)


# As in PyTorch, `autograd.gradcheck` is the function, and `from torch.autograd.gradcheck import GradcheckError` works.
_sys.modules[f"{__name__}.gradcheck"] = _ModuleType(f"{__name__}.gradcheck")
_sys.modules[f"{__name__}.gradcheck"].__getattr__ = _from_checking


if _typing.TYPE_CHECKING:
    from tensorgrad.autograd import forward_ad, function, functional, grad_mode, profiler
    from tensorgrad.autograd import variable as variable
    from tensorgrad.autograd.checking import gradcheck, gradgradcheck
    from tensorgrad.autograd.function import Function
    from tensorgrad.autograd.variable import Variable
else:  # otherwise type checkers would accept every misspelled name

    def __getattr__(name: str):
        import importlib

        if name in ("gradcheck", "gradgradcheck"):  # the functions, as in PyTorch; the module is autograd/checking.py
            return _from_checking(name)
        if name in ("_disable_profiler", "_profiler_enabled"):
            return getattr(importlib.import_module("tensorgrad.profiler.recorder"), name)
        if name == "kineto_available":
            return importlib.import_module("tensorgrad.profiler").kineto_available
        if name == "Function":
            from tensorgrad.autograd.function import Function

            return Function
        if name == "SavedTensor":
            from tensorgrad.autograd.saved_attributes import SavedTensor

            return SavedTensor
        if name == "Variable":
            from tensorgrad.autograd.variable import Variable

            return Variable
        raise importlib.import_module("tensorgrad.system.missing_names").no_attribute(__name__, name)

    def __dir__() -> list[str]:
        made = ("Function", "SavedTensor", "Variable", "gradcheck", "gradgradcheck", "kineto_available")
        return sorted({*globals(), *made})

    later(
        __name__,
        ("node_calls", "checking", "edges", "engine", "forward_ad", "function", "functional", "hooks",
         "legacy_functions", "passes", "profiler", "saved_attributes", "saved_tensor_hooks", "tracebacks",
         "variable", "views"),
    )  # fmt: skip
    whole(__name__)
