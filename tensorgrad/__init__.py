"""tensorgrad: PyTorch's programming model in pure Python. Write `import tensorgrad as torch`, and your program runs.

This module only lists what PyTorch users expect to find in `torch` (for type checkers, `__init__.pyi` does: see
_stubs/). To read how it works, start with docs/architecture.md in the repository, or with tensor.py,
autograd/engine.py and rows/op.py.
"""

import importlib as _importlib
import os as _os
import warnings as _warnings
from math import e, inf, nan, pi

__path__.append(_os.path.join(__path__[0], "compat", "names"))  # the modules that only have PyTorch's names

from tensorgrad.system.collector import patient as _patient
from tensorgrad.system.collector import paused as _paused
from tensorgrad.system.processors import divide_among_local_ranks as _divide

_divide()  # before NumPy is loaded

with _paused():
    _importlib.import_module("tensorgrad.tensor")

from tensorgrad.devices import device
from tensorgrad.dtypes import (
    bfloat16,
    bits1x8,
    bits2x4,
    bits4x2,
    bits8,
    bits16,
    bool,
    can_cast,
    cdouble,
    cfloat,
    chalf,
    complex32,
    complex64,
    complex128,
    double,
    dtype,
    finfo,
    float,
    float4_e2m1fn_x2,
    float8_e4m3fn,
    float8_e4m3fnuz,
    float8_e5m2,
    float8_e5m2fnuz,
    float8_e8m0fnu,
    float16,
    float32,
    float64,
    get_default_dtype,
    half,
    iinfo,
    int,
    int1,
    int2,
    int3,
    int4,
    int5,
    int6,
    int7,
    int8,
    int16,
    int32,
    int64,
    long,
    promote_types,
    qint8,
    qint32,
    quint2x4,
    quint4x2,
    quint8,
    set_default_dtype,
    short,
    uint1,
    uint2,
    uint3,
    uint4,
    uint5,
    uint6,
    uint7,
    uint8,
    uint16,
    uint32,
    uint64,
)
from tensorgrad.layouts import (
    _mkldnn,
    channels_last,
    channels_last_3d,
    contiguous_format,
    jagged,
    layout,
    memory_format,
    per_channel_affine,
    per_channel_affine_float_qparams,
    per_channel_symmetric,
    per_tensor_affine,
    per_tensor_symmetric,
    preserve_format,
    qscheme,
    sparse_bsc,
    sparse_bsr,
    sparse_coo,
    sparse_csc,
    sparse_csr,
    strided,
)
from tensorgrad.printing import set_printoptions
from tensorgrad.size import Size
from tensorgrad.tensor import ON_DISPATCHING_CLASS as _ON_DISPATCHING_CLASS
from tensorgrad.tensor import Tensor

# NumPy warns about overflow and division by zero; PyTorch does not. (If the user turns these warnings into exceptions,
# the result is still computed: see dispatch/kernel_errors.py.)
_warnings.filterwarnings("ignore", category=RuntimeWarning, module=r"tensorgrad\b")

from tensorgrad import autograd, random, return_types
from tensorgrad.autograd import gradients as _gradients
from tensorgrad.autograd.anomaly import is_anomaly_check_nan_enabled, is_anomaly_enabled, set_anomaly_enabled
from tensorgrad.autograd.modes import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from tensorgrad.dispatch.guard import guard_methods as _guard_methods
from tensorgrad.dispatch.guard import guarded as _guarded
from tensorgrad.dispatch.kinds import FUNCTIONS as _FUNCTIONS
from tensorgrad.kernels.compiled.table import install as _install
from tensorgrad.kernels.compiled.table import wanted as _wanted
from tensorgrad.ops import FAMILIES as _FAMILIES
from tensorgrad.ops.random.states import get_rng_state, set_rng_state
from tensorgrad.queries import *
from tensorgrad.queries import _assert
from tensorgrad.random import (
    Generator,
    default_generator,
    initial_seed,
    manual_seed,
    seed,
)
from tensorgrad.rows.op import check_from_now_on as _check_from_now_on
from tensorgrad.settings import *
from tensorgrad.symbolic import *
from tensorgrad.system.lazy_modules import later as _later
from tensorgrad.torch_version import __version__

newaxis = None

_typed = {"can_cast": can_cast, "promote_types": promote_types, "result_type": result_type}  # noqa: F405
with _paused():
    for _family in _FAMILIES:
        _importlib.import_module(f"tensorgrad.ops.{_family}")
    _check_from_now_on()
    globals().update(_guarded({**_FUNCTIONS, **_typed}, "tensorgrad", numpy_names=True))
    _importlib.import_module("tensorgrad.tensor_render")
    _guard_methods()
    _importlib.import_module("tensorgrad.autograd.hooks")

globals().pop("ops")  # the package; `torch.ops` is PyTorch's registry of operators (`tensorgrad._ops`)

if _wanted():  # large arrays use compiled kernels, which are loaded on first use
    _install()

_ON_DISPATCHING_CLASS.append(lambda cls: _importlib.import_module("tensorgrad.library.dispatch_classes").see(cls))

_gradients.OVER_BATCH = lambda *given: _importlib.import_module("tensorgrad.transforms.batch_map").over_batch(*given)

if "DEBUG" in _os.environ:
    from tensorgrad.debug import from_environment as _debug_from_environment

    _debug_from_environment()

_LAZY = (  # modules that are loaded on first use
    "_C", "__config__", "__future__", "_functorch", "_jit_internal", "_subclasses", "_tensor", "_tensor_str", "_utils",
    "accelerator", "ao", "backends", "compat", "cpu", "cuda", "distributed", "distributions", "fft", "func",
    "export", "functional",
    "futures", "fx", "hub", "jit", "library", "linalg", "masked", "mps", "multiprocessing", "nested", "nn", "onnx",
    "optim", "overrides", "profiler",
    "quantization", "quasirandom", "signal", "sparse", "special", "testing", "types", "utils",
    "viz", "xpu",
)  # fmt: skip
_TOOLS = (  # likewise; not part of PyTorch
    "absent_device", "capture", "control_flow", "coverage", "debug", "gguf", "info", "quantized", "run",
)  # fmt: skip
_later(__name__, _LAZY + _TOOLS)
_ELSEWHERE = {
    "Tag": "tensorgrad.library.tags",
    "cond": "tensorgrad.control_flow",
    "vmap": "tensorgrad.func",
    "while_loop": "tensorgrad.control_flow",
    "quantize": "tensorgrad.quantized",
    **dict.fromkeys(
        (
            "AnyType",
            "BoolType",
            "ComplexType",
            "DeviceObjType",
            "DictType",
            "FloatType",
            "IntType",
            "ListType",
            "NoneType",
            "NumberType",
            "OptionalType",
            "ScriptMethod",
            "ScriptObject",
            "StreamObjType",
            "StringType",
            "TensorType",
            "TupleType",
        ),
        "tensorgrad.jit.type_names",
    ),
}  # likewise; single names

from tensorgrad import amp, checks, serialization, tensor_types
from tensorgrad._ops import ops
from tensorgrad.amp import GradScaler, autocast
from tensorgrad.amp.autocast_state import *
from tensorgrad.checks import (
    _assert_async,
    _check,
    _check_index,
    _check_is_size,
    _check_not_implemented,
    _check_tensor_all,
    _check_type,
    _check_value,
    _check_with,
)
from tensorgrad.dispatch.slow_path import DisableTorchFunction, DisableTorchFunctionSubclass
from tensorgrad.errors import AcceleratorError
from tensorgrad.futures import Future
from tensorgrad.ops.pytorch.storage_values import legacy_types as _storage_types
from tensorgrad.ops.sparse.construct import (
    sparse_bsc_tensor,
    sparse_bsr_tensor,
    sparse_compressed_tensor,
    sparse_coo_tensor,
    sparse_csc_tensor,
    sparse_csr_tensor,
)
from tensorgrad.serialization import load, save
from tensorgrad.serialization.file_reader import PyTorchFileReader
from tensorgrad.storage.cuda.memory import OutOfMemoryError
from tensorgrad.streams import Event, Stream
from tensorgrad.tensor_types import types as _tensor_types

globals().update(_storage_types(), **_tensor_types())  # FloatStorage, FloatTensor, ...

_patient()  # until the first op is called: other libraries are probably imported next

from tensorgrad.compiler import ScriptModule, compile


def __getattr__(name: str):
    if name == "torch":  # PyTorch has it, too
        return _importlib.import_module("tensorgrad")
    if name in _ELSEWHERE:
        globals()[name] = getattr(_importlib.import_module(_ELSEWHERE[name]), name)
        return globals()[name]
    if name.startswith("_foreach_"):
        globals().update(_importlib.import_module("tensorgrad.foreach").functions())
        if name in globals():
            return globals()[name]
    raise _importlib.import_module("tensorgrad.system.missing_names").no_attribute("tensorgrad", name)
