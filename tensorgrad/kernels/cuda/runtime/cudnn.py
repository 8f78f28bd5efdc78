"""Convolutions by cuDNN 9: by its graph interface (cudnn_graph.py) if that serves, else by its older one.

A convolution, its gradient with respect to the input and that with respect to the weights are three calls of one form:
two input tensors, one output, an algorithm and a workspace. The *descriptors* of the shapes and the recommended
algorithms are cached per combination of shapes and settings as a `Plan`.

Precisions and options are PyTorch's: `torch.backends.cudnn.allow_tf32`, `.deterministic` and `.benchmark`.
"""

from __future__ import annotations

import ctypes
import sys
from collections import OrderedDict
from math import prod

import cupy

from tensorgrad.kernels.cuda.runtime import cudnn_graph, libraries, program, switches
from tensorgrad.kernels.cuda.runtime.calls import Functions, Handles, Refused
from tensorgrad.settings import SETTINGS
from tensorgrad.storage.cuda.capture import current

# --- the library ---------------------------------------------------------------------------------------------------

_QUERY, _TRIAL, _RUN = "pppppipp", "ppppppppipppz", "pppppppipzppp"
SIGNATURES = {
    "cudnnCreate": "p", "cudnnDestroy": "p", "cudnnSetStream": "pp",
    "cudnnCreateTensorDescriptor": "p", "cudnnDestroyTensorDescriptor": "p", "cudnnSetTensorNdDescriptor": "piipp",
    "cudnnCreateFilterDescriptor": "p", "cudnnDestroyFilterDescriptor": "p", "cudnnSetFilterNdDescriptor": "piiip",
    "cudnnCreateConvolutionDescriptor": "p", "cudnnDestroyConvolutionDescriptor": "p",
    "cudnnSetConvolutionNdDescriptor": "pipppii", "cudnnSetConvolutionGroupCount": "pi",
    "cudnnSetConvolutionMathType": "pi",
    "cudnnGetConvolutionForwardAlgorithm_v7": _QUERY, "cudnnGetConvolutionBackwardDataAlgorithm_v7": _QUERY,
    "cudnnGetConvolutionBackwardFilterAlgorithm_v7": _QUERY,
    "cudnnFindConvolutionForwardAlgorithmEx": _TRIAL, "cudnnFindConvolutionBackwardDataAlgorithmEx": _TRIAL,
    "cudnnFindConvolutionBackwardFilterAlgorithmEx": _TRIAL,
    "cudnnConvolutionForward": _RUN, "cudnnConvolutionBackwardData": _RUN, "cudnnConvolutionBackwardFilter": _RUN,
}  # fmt: skip


LIBRARY = Functions("cudnn", SIGNATURES, cudnn_graph.words)

# From cudnnDataType_t; cudnnTensorFormat_t; cudnnConvolutionMode_t; cudnnMathType_t; cudnnDeterminism_t.
TYPES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 9}
CHANNELS_FIRST, CHANNELS_LAST = 0, 1
CROSS_CORRELATION = 1
DEFAULT_MATH, TENSOR_OP_MATH, FMA_MATH = 0, 1, 3
DETERMINISTIC = 1
BAD_PARAMETER, NOT_SUPPORTED = 2, 3  # the thousands of the corresponding statuses

# kind -> the suffix of its three calls
KINDS = {"forward": "Forward", "input": "BackwardData", "weight": "BackwardFilter"}
MOST_ALGORITHMS = 10
MOST_PLANS = 1024
TRIAL_BYTES = 1 << 30  # of workspace for trials of algorithms
LARGEST = 2**31 - 1  # cuDNN counts elements in ints


def version() -> int:
    """Returns cuDNN's version: 91900 is 9.19.0. Raises: Missing if cuDNN is not installed."""
    function = libraries.load("cudnn").cudnnGetVersion
    function.restype = ctypes.c_size_t
    return function()


class Performance(ctypes.Structure):
    """cuDNN's report on an algorithm: `cudnnConvolutionFwdAlgoPerf_t`, the same for all three kinds."""

    _fields_ = (
        ("algorithm", ctypes.c_int), ("status", ctypes.c_int), ("milliseconds", ctypes.c_float),
        ("memory", ctypes.c_size_t), ("determinism", ctypes.c_int), ("math", ctypes.c_int),
        ("reserved", ctypes.c_int * 3),
    )  # fmt: skip


class Handle:
    """A cuDNN handle of one thread and device, with its plans."""

    def __init__(self):
        made = ctypes.c_void_p()
        LIBRARY.cudnnCreate(ctypes.addressof(made))
        self.address, self.in_c = made.value, made
        self.stream = None
        self.plans: OrderedDict[tuple, Plan] = OrderedDict()

    def follow(self, stream: int) -> None:
        """Switches to a stream."""
        LIBRARY.cudnnSetStream(self.address, stream)
        self.stream = stream

    def plan(self, key: tuple) -> Plan:
        """Returns the plan for a combination of shapes and settings; a new plan evicts the least recently used one."""
        found = self.plans.get(key)
        if found is None:
            found = self.plans[key] = Plan(self, *key)
            if len(self.plans) > MOST_PLANS:
                self.plans.popitem(last=False)
        else:
            self.plans.move_to_end(key)
        return found

    def __del__(self, ending=sys.is_finalizing):
        # At interpreter exit CUDA may already be gone, along with the handle.
        if not ending() and hasattr(self, "address"):
            LIBRARY.cudnnDestroy(self.address)


handle = Handles(Handle).current


# --- descriptors ---------------------------------------------------------------------------------------------------


class Descriptor:
    """A cuDNN descriptor of the kind "Tensor", "Filter" or "Convolution"."""

    def __init__(self, kind: str, setter: str, *arguments):
        self.kind, made = kind, ctypes.c_void_p()
        getattr(LIBRARY, f"cudnnCreate{kind}Descriptor")(ctypes.addressof(made))
        self.address = made.value
        getattr(LIBRARY, setter)(self.address, *arguments, about=lambda: tuple(map(_shown, arguments)))

    def __del__(self, ending=sys.is_finalizing):
        if not ending() and hasattr(self, "address"):
            getattr(LIBRARY, f"cudnnDestroy{self.kind}Descriptor")(self.address)


def _ints(values):
    return (ctypes.c_int * len(values))(*values)


def _shown(argument):
    return tuple(argument) if isinstance(argument, ctypes.Array) else argument


def tensor(code: int, shape, last: bool) -> Descriptor:
    """Describes a contiguous tensor (N, C, *); `last`: channels last in memory."""
    order = (0, *range(2, len(shape)), 1) if last else range(len(shape))
    steps, step = [0] * len(shape), 1
    for axis in reversed(tuple(order)):
        steps[axis], step = step, step * shape[axis]
    return Descriptor("Tensor", "cudnnSetTensorNdDescriptor", code, len(shape), _ints(shape), _ints(steps))


def lengthened(values, fill, least=2) -> tuple[int, ...]:
    """Extends sizes of a 1-D convolution to 2-D, with a first dimension of length 1.

    >>> lengthened((8, 3, 100), 1, 4)
    (8, 3, 1, 100)
    """
    values = tuple(values)
    return values if len(values) >= least else (*values[:-1], fill, values[-1])


class Plan:
    """Descriptors and algorithms for one kind of convolution and one combination of shapes and settings.

    Timed algorithms (`benchmark`) are the older interface's. Without a handle (`use`) there is nothing else.
    """

    def __init__(
        self, use, kind, name, x_shape, w_shape, y_shape, last, stride, padding, dilation, groups, tf32, same, benchmark
    ):  # fmt: skip
        code = TYPES[name]
        self.kind, self.name, self.last, self.same, self.benchmark = kind, name, last, same, benchmark
        self.shapes = {"input": x_shape, "weight": w_shape, "output": y_shape}
        x_shape, w_shape, y_shape = (lengthened(shape, 1, 4) for shape in (x_shape, w_shape, y_shape))
        stride, padding, dilation = lengthened(stride, 1), lengthened(padding, 0), lengthened(dilation, 1)
        self.graph = None
        if use is not None and name in cudnn_graph.TYPES and not benchmark:
            shapes = x_shape, w_shape, y_shape
            given = kind, name, shapes, last, stride, padding, dilation, tf32, same
            self.graph = cudnn_graph.Plan(use.address, *given)
        x, y = tensor(code, x_shape, last), tensor(code, y_shape, last)
        w = Descriptor("Filter", "cudnnSetFilterNdDescriptor", code, CHANNELS_LAST if last else CHANNELS_FIRST,
                       len(w_shape), _ints(w_shape))  # fmt: skip
        # The order in which each kind's calls take them: two inputs, one output.
        self.descriptors = {"forward": (x, w, y), "input": (w, y, x), "weight": (x, y, w)}[kind]
        sums = TYPES["float64"] if name == "float64" else TYPES["float32"]
        self.convolution = Descriptor(
            "Convolution", "cudnnSetConvolutionNdDescriptor", len(stride), _ints(padding), _ints(stride),
            _ints(dilation), CROSS_CORRELATION, sums,
        )  # fmt: skip
        LIBRARY.cudnnSetConvolutionGroupCount(self.convolution.address, groups)
        self.math = TENSOR_OP_MATH if name in ("float16", "bfloat16") else DEFAULT_MATH
        if name == "float32" and not tf32:
            self.math = FMA_MATH
        self._fixed = self.math == FMA_MATH
        LIBRARY.cudnnSetConvolutionMathType(self.convolution.address, self.math)
        number = ctypes.c_double if name == "float64" else ctypes.c_float
        self.numbers = number(1), number(0)  # the factors of the result and of the output's previous contents
        # C numbers, which ctypes takes faster than Python's.
        self.factors = [ctypes.c_void_p(ctypes.addressof(n)) for n in self.numbers]
        self.places = [ctypes.c_void_p(d.address) for d in (*self.descriptors, self.convolution)]
        self.call = getattr(LIBRARY, f"cudnnConvolution{KINDS[kind]}")
        self.found: list[Performance] | None = None

    def about(self) -> str:
        return f"{self.name} with {', '.join(f'{name} {shape}' for name, shape in self.shapes.items())}"

    def _cannot(self, refused: Refused) -> bool:
        """Returns whether cuDNN only reports this as unsupported ("bad parameter" for channels-last tensors)."""
        return refused.status // 1000 == NOT_SUPPORTED or (self.last and refused.status // 1000 == BAD_PARAMETER)

    def algorithms(self, use: Handle, first, second, out) -> list[Performance]:
        """Lists the algorithms cuDNN offers here, best first; with `benchmark` it times them on the arrays."""
        if self.found is None:
            benchmark = self.benchmark and current() is None  # in a graph there is nothing to be timed
            results, count = (Performance * MOST_ALGORITHMS)(), ctypes.c_int()
            one, two, three, how = self.places
            rest = ctypes.addressof(count), ctypes.addressof(results)
            name = KINDS[self.kind]
            try:
                if benchmark:
                    most = min(switches.cudnn.benchmark_limit or MOST_ALGORITHMS, MOST_ALGORITHMS)
                    memory, size = _workspace()
                    getattr(LIBRARY, f"cudnnFindConvolution{name}AlgorithmEx")(
                        use.address, one, first.data.ptr, two, second.data.ptr, how, three, out.data.ptr, most, *rest,
                        memory.ptr if size else None, size, about=self.about,
                    )  # fmt: skip
                else:
                    getattr(LIBRARY, f"cudnnGetConvolution{name}Algorithm_v7")(
                        use.address, one, two, how, three, MOST_ALGORITHMS, *rest, about=self.about
                    )
            except Refused as refused:
                if not self._cannot(refused):
                    raise
            found = [
                result for result in results[: count.value]
                if not result.status and (not self.same or result.determinism == DETERMINISTIC)
            ]  # fmt: skip
            if benchmark != self.benchmark:
                return found
            self.found = found
        return self.found

    def run(self, use: Handle, first, second, out) -> bool:
        """Writes the result into `out`. Returns False if no algorithm supports these shapes.

        An algorithm that lacks workspace memory, or turns out to be unsupported, is replaced by the next.
        """
        if self.graph is not None and self.graph.run(use, first, second, out, self.about):
            return True
        one, two, three, how = self.places
        begin, end = self.factors
        candidates = self.algorithms(use, first, second, out)
        for chosen in list(candidates):
            try:
                memory = cupy.cuda.alloc(chosen.memory) if chosen.memory else None
            except cupy.cuda.memory.OutOfMemoryError:
                if chosen is candidates[-1]:
                    raise
                continue
            math = FMA_MATH if self._fixed else chosen.math
            if math != self.math:
                LIBRARY.cudnnSetConvolutionMathType(how, math)
                self.math = math
            try:
                self.call(
                    use.in_c, begin, one, first.data.ptr, two, second.data.ptr, how, chosen.algorithm,
                    memory.ptr if memory else None, chosen.memory, end, three, out.data.ptr, about=self.about,
                )  # fmt: skip
                return True
            except Refused as refused:
                if not self._cannot(refused):
                    raise
                candidates.remove(chosen)
        return False


def _workspace():
    """Allocates workspace for trials: as much as is available, up to TRIAL_BYTES."""
    size = TRIAL_BYTES
    while size >= 1 << 20:
        try:
            return cupy.cuda.alloc(size), size
        except cupy.cuda.memory.OutOfMemoryError:
            size //= 4
    return None, 0


# --- convolutions --------------------------------------------------------------------------------------------------


def serves(x) -> bool:
    """Returns whether cuDNN can currently run convolutions of arrays of this dtype and size."""
    return (
        switches.cudnn.enabled and program.NAME[x.dtype] in TYPES and x.size <= LARGEST and libraries.present("cudnn")
    )  # fmt: skip


def lies_last(x) -> bool:
    """Returns whether an array (N, C, H, W) or (N, C, D, H, W) is channels-last in memory and not contiguous."""
    return x.ndim > 3 and not x._c_contiguous and _turned(x).flags.c_contiguous


def _turned(x):
    return x.transpose(0, *range(2, x.ndim), 1)


def laid(x, last: bool):
    """Returns `x` contiguous, or contiguous in channels-last order; copied if needed."""
    if not last:
        return x if x._c_contiguous else cupy.ascontiguousarray(x)
    return cupy.ascontiguousarray(_turned(x)).transpose(0, x.ndim - 1, *range(1, x.ndim - 1))


def empty(shape, dtype, last: bool):
    """Allocates (N, C, *), contiguous or channels last."""
    if not last:
        return cupy.empty(shape, dtype)
    made = cupy.empty((shape[0], *shape[2:], shape[1]), dtype)
    return made.transpose(0, made.ndim - 1, *range(1, made.ndim - 1))


def convolve(kind, first, second, shape, stride, padding, dilation, groups):
    """Computes a convolution or a gradient of one: an array of `shape`, or None if cuDNN cannot.

    `kind` is "forward" (of the input and the weights), "input" (the gradient with respect to the input, from the
    weights and the output's gradient) or "weight" (with respect to the weights, from the input and the output's
    gradient). The result is channels-last if one of the arrays is, as in PyTorch.

    Raises: RuntimeError with the shapes if cuDNN fails.
    """
    if first.data.device_id != cupy.cuda.get_device_id():
        with cupy.cuda.Device(first.data.device_id):
            return convolve(kind, first, second, shape, stride, padding, dilation, groups)
    if max(first.size, second.size, prod(shape)) > LARGEST:
        return None
    last = lies_last(first) or lies_last(second)
    use = handle()
    same = switches.cudnn.deterministic or SETTINGS.deterministic
    for order in (True, False) if last else (False,):
        one, two = laid(first, order), laid(second, order)
        out = empty(shape, first.dtype, order)
        if kind == "forward":
            shapes = one.shape, two.shape, out.shape
        elif kind == "input":
            shapes = out.shape, one.shape, two.shape
        else:
            shapes = one.shape, out.shape, two.shape
        key = (
            kind, program.NAME[first.dtype], *shapes, order, tuple(stride), tuple(padding), tuple(dilation),
            groups, switches.cudnn.allow_tf32, same, switches.cudnn.benchmark,
        )  # fmt: skip
        if use.plan(key).run(use, one, two, out):
            return out
    return None
