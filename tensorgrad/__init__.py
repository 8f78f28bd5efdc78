"""tensorgrad: PyTorch's programming model in pure Python. `import tensorgrad as torch`, and your program runs.

This module is only the list of what PyTorch's users expect to find in `torch`. To read how it works, start with
docs/architecture.md, or with tensor.py, autograd/engine.py and ops/op.py.
"""

import importlib as _importlib
import importlib.util as _util
import os as _os
import warnings as _warnings
from math import e, inf, nan, pi

from tensorgrad.devices import device
from tensorgrad.dtypes import (
    bfloat16,
    bool,
    can_cast,
    cdouble,
    cfloat,
    complex64,
    complex128,
    double,
    dtype,
    finfo,
    float,
    float16,
    float32,
    float64,
    get_default_dtype,
    half,
    iinfo,
    int,
    int8,
    int16,
    int32,
    int64,
    long,
    promote_types,
    set_default_dtype,
    short,
    uint8,
)
from tensorgrad.layouts import (
    channels_last,
    channels_last_3d,
    contiguous_format,
    layout,
    memory_format,
    preserve_format,
    strided,
)
from tensorgrad.printing import set_printoptions
from tensorgrad.size import Size
from tensorgrad.tensor import Tensor

# NumPy warns of overflow and division by zero; PyTorch does not. (A user who turns these warnings into exceptions
# still gets the result: see ops/errors.py.)
_warnings.filterwarnings("ignore", category=RuntimeWarning, module=r"tensorgrad\b")

from tensorgrad import autograd, ops  # noqa: E402
from tensorgrad.autograd.anomaly import is_anomaly_enabled  # noqa: E402
from tensorgrad.autograd.modes import (  # noqa: E402
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from tensorgrad.info import *  # noqa: E402, F403
from tensorgrad.ops import FAMILIES as _FAMILIES  # noqa: E402
from tensorgrad.ops.kinds import FUNCTIONS as _FUNCTIONS  # noqa: E402
try:  # DEVELOPMENT
    from tensorgrad.random import (Generator,default_generator,get_rng_state,initial_seed,manual_seed,seed,set_rng_state)
except ModuleNotFoundError:
    pass

__version__ = "0.1.0"

newaxis = None

for _family in _FAMILIES:
    try:  # DEVELOPMENT
        _importlib.import_module(f"tensorgrad.ops.{_family}")
    except ModuleNotFoundError as _error:
        if _error.name != f"tensorgrad.ops.{_family}":
            raise
globals().update(_FUNCTIONS)
_importlib.import_module("tensorgrad.autograd.hooks")

if "DEBUG" in _os.environ:
    from tensorgrad.debug import from_environment as _debug_from_environment

    _debug_from_environment()

_LAZY = ("compat", "linalg", "nn", "optim", "special", "testing", "utils")  # loaded when first used


def __getattr__(name: str):
    if name in _LAZY and _util.find_spec(f"tensorgrad.{name}"):
        return _importlib.import_module(f"tensorgrad.{name}")
    raise AttributeError(f"module 'tensorgrad' has no attribute {name!r}")


def __dir__():
    return sorted({*globals(), *_LAZY})
