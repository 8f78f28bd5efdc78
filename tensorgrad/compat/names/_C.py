"""`torch._C`: the names from PyTorch's compiled core that programs commonly use."""

from tensorgrad.autograd import passes as _passes
from tensorgrad.autograd.modes import is_grad_enabled
from tensorgrad.devices import device
from tensorgrad.dispatch.slow_path import DisableTorchFunction, DisableTorchFunctionSubclass
from tensorgrad.dtypes import dtype
from tensorgrad.kernels.array.linalg import LinAlgError as _LinAlgError
from tensorgrad.random import Generator, default_generator
from tensorgrad.rows.switches import LOCAL as _LOCAL
from tensorgrad.size import Size
from tensorgrad.system.exporting import is_exporting as _is_exporting
from tensorgrad.system.lazy_modules import whole
from tensorgrad.tensor import Tensor as _Tensor
from tensorgrad.tensor import disabled_torch_function as _disabled_torch_function_impl  # noqa: F401

_TensorMeta = type(_Tensor)

has_lapack = has_spectral = True  # NumPy brings both
has_mkl = has_cuda = _has_cuda = _has_mps = _has_xpu = False

_current_autograd_node = _passes.current_node
_current_graph_task_execution_order = _passes.execution_order
_current_graph_task_id = _passes.current_id
_will_engine_execute_node = _passes.will_execute

__all__ = [
    "DisableTorchFunction", "DisableTorchFunctionSubclass", "Generator", "Size", "_LinAlgError", "default_generator",
    "device", "dtype", "is_grad_enabled",
]  # fmt: skip


def _log_api_usage_once(event: str) -> None:
    """Does nothing: API usage is not logged."""


def _get_tracing_state() -> None:
    """Returns None: a trace has no state of PyTorch's C++ core."""


def _is_tracing() -> bool:
    """Returns whether `torch.jit.trace` is running the code."""
    return _is_exporting("trace")


def _are_functorch_transforms_active() -> bool:
    """Returns whether a transform of `torch.func` is running."""
    return bool(_LOCAL.transforms)


def _is_torch_function_mode_enabled() -> bool:
    """Returns whether a mode of `torch.overrides` is on."""
    return bool(_LOCAL.function_modes)


def _len_torch_function_stack() -> int:
    """Returns how many modes of `torch.overrides` are on."""
    return len(_LOCAL.function_modes)


def _get_default_device() -> str:
    """Returns the type of the default device."""
    import tensorgrad

    return tensorgrad.get_default_device().type


def _get_accelerator(check: bool | None = None) -> device:
    """Returns the accelerator's device, or the CPU's. Raises: RuntimeError if there is none and `check` is true."""
    from tensorgrad import accelerator

    found = accelerator.current_accelerator()
    if found is None and check:
        raise RuntimeError("Cannot access accelerator device when none is available.")
    return found or device("cpu")


_JIT = (
    "AnyType", "BoolType", "ComplexType", "DeviceObjType", "DictType", "FloatType", "IntType", "JitType", "ListType",
    "NoneType", "NumberType", "OptionalType", "ScriptMethod", "ScriptObject", "StreamObjType", "StringType",
    "TensorType", "TupleType",
)  # fmt: skip
_DISPATCH = ("DispatchKey", "DispatchKeySet", "_AutoDispatchBelowAutograd", "_ExcludeDispatchKeyGuard")


def __getattr__(name: str):
    if name == "_nn":  # where callers look for the compiled functions of torch.nn.functional
        from tensorgrad.nn import compiled

        return compiled
    if name == "PyTorchFileReader":
        from tensorgrad.serialization.file_reader import PyTorchFileReader

        return PyTorchFileReader
    if name in ("_VariableFunctions", "_VariableFunctionsClass"):  # the same for torch
        import tensorgrad

        return tensorgrad
    if name in _DISPATCH:
        from tensorgrad.library import dispatch_keys

        return getattr(dispatch_keys, name)
    if name in _JIT:
        from tensorgrad.jit import type_names

        return getattr(type_names, name)
    if name == "_dispatch_has_kernel_for_dispatch_key":
        from tensorgrad.library.operators import has_kernel

        return has_kernel
    if name == "Tag":
        from tensorgrad.library.tags import Tag

        return Tag
    if name == "_functions":
        from tensorgrad.autograd import named_nodes

        return named_nodes
    if name == "_autograd":
        from tensorgrad.autograd import saved_attributes

        return saved_attributes
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)


def __dir__() -> list[str]:
    return sorted(
        {
            *globals(),
            *_DISPATCH,
            *_JIT,
            "PyTorchFileReader",
            "Tag",
            "_dispatch_has_kernel_for_dispatch_key",
            "_VariableFunctions",
            "_VariableFunctionsClass",
            "_autograd",
            "_functions",
            "_nn",
        }
    )


whole(__name__)
