"""A stand-in for libcudnn: convolutions on the memory that it is given, by the older and by the graph interface.

What descriptors refuse was tried on cuDNN 9.28, which makes descriptors without a GPU. Which algorithms there are, what
they need and which of them repeat their bits is made up after cuDNN's documentation: some want working memory, some
are not deterministic, some do not serve channels that lie last. Working memory is overwritten.

Source: NVIDIA's headers cudnn_ops.h, cudnn_cnn.h and cudnn_graph.h (cuDNN 9).
"""

from __future__ import annotations

import copy
import ctypes
from itertools import product

import numpy as np

from tests.emulator import graphs, runtime
from tests.emulator.library import BFLOAT16, Library, Refuse, as_tf32, memory, wide

NOT_INITIALIZED, BAD_PARAM, NULL_POINTER, MISALIGNED = 1001, 2000, 2002, 2003
NOT_SUPPORTED, INTERNAL_ERROR, EXECUTION_FAILED = 3000, 4000, 5000
WORDS = {
    0: "SUCCESS", 1001: "NOT_INITIALIZED", 2000: "BAD_PARAM", 2002: "BAD_PARAM_NULL_POINTER",
    2003: "BAD_PARAM_MISALIGNED_POINTER", 2008: "BAD_PARAM_SHAPE_MISMATCH", 3000: "NOT_SUPPORTED",
    4000: "INTERNAL_ERROR", 5000: "EXECUTION_FAILED",
}  # fmt: skip
VERSION = 91900
LIBRARY = Library(INTERNAL_ERROR)

# cudnnDataType_t
DTYPES = {0: np.dtype(np.float32), 1: np.dtype(np.float64), 2: np.dtype(np.float16), 9: BFLOAT16}
FMA_MATH = 3


def check(good, status=BAD_PARAM):
    if not good:
        raise Refuse(status)


# These two return no status.
_version = ctypes.CFUNCTYPE(ctypes.c_size_t)(lambda: VERSION)
_texts = {status: f"CUDNN_STATUS_{word}".encode() for status, word in WORDS.items()}
_buffers = {status: ctypes.create_string_buffer(text) for status, text in _texts.items()}
_unknown = ctypes.create_string_buffer(b"CUDNN_UNKNOWN_STATUS")
_error = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int)(
    lambda status: ctypes.addressof(_buffers.get(status, _unknown))
)
for _name, _callback in (("cudnnGetVersion", _version), ("cudnnGetErrorString", _error)):
    _address = ctypes.cast(_callback, ctypes.c_void_p).value
    LIBRARY._functions[_name] = ctypes.CFUNCTYPE(ctypes.c_int)(_address)


class Context:
    def __init__(self):
        self.device, self.stream = runtime.CURRENT.device, 0


class Tensor:
    dtype = shape = steps = None


class Filter:
    dtype = shape = last = None

    @property
    def steps(self):
        return packed(self.shape, self.last)


class Convolution:
    groups, math, padding = 1, 0, None


def packed(shape, last):
    order = (0, *range(2, len(shape)), 1) if last else range(len(shape))
    steps, step = [0] * len(shape), 1
    for axis in reversed(tuple(order)):
        steps[axis], step = step, step * shape[axis]
    return tuple(steps)


def context(handle) -> Context:
    found = LIBRARY.found(handle, Context, NOT_INITIALIZED)
    check(found.device == runtime.CURRENT.device)
    return found


def ints(address, count):
    check(bool(address))
    return tuple((ctypes.c_int * count).from_address(address))


@LIBRARY.function("p")
def cudnnCreate(handle):
    LIBRARY.made(Context(), handle, NULL_POINTER)


@LIBRARY.function("p")
def cudnnDestroy(handle):
    LIBRARY.found(handle, Context, NOT_INITIALIZED)
    del LIBRARY.objects[handle]


@LIBRARY.function("pp")
def cudnnSetStream(handle, stream):
    context(handle).stream = stream


def _pairs_of_functions(kind):
    name = kind.__name__

    def create(at):
        LIBRARY.made(kind(), at, BAD_PARAM)

    def destroy(descriptor):
        LIBRARY.found(descriptor, kind, BAD_PARAM)
        del LIBRARY.objects[descriptor]

    create.__name__, destroy.__name__ = f"cudnnCreate{name}Descriptor", f"cudnnDestroy{name}Descriptor"
    LIBRARY.function("p")(create)
    LIBRARY.function("p")(destroy)


for _kind in (Tensor, Filter, Convolution):
    _pairs_of_functions(_kind)


@LIBRARY.function("piipp")
def cudnnSetTensorNdDescriptor(descriptor, dtype, dims, shape, steps):
    found = LIBRARY.found(descriptor, Tensor, BAD_PARAM)
    check(dtype in DTYPES and dims >= 3)
    check(dims <= 8, NOT_SUPPORTED)
    found.shape, found.steps, found.dtype = ints(shape, dims), ints(steps, dims), DTYPES[dtype]
    check(min(found.shape) >= 1 and min(found.steps) >= 1)
    check(sum((n - 1) * s for n, s in zip(found.shape, found.steps, strict=True)) < 2**31, NOT_SUPPORTED)


@LIBRARY.function("piiip")
def cudnnSetFilterNdDescriptor(descriptor, dtype, order, dims, shape):
    found = LIBRARY.found(descriptor, Filter, BAD_PARAM)
    check(dtype in DTYPES and order in (0, 1) and dims >= 3)
    check(dims <= 8, NOT_SUPPORTED)
    found.shape, found.dtype, found.last = ints(shape, dims), DTYPES[dtype], order == 1
    check(min(found.shape) >= 1)


@LIBRARY.function("pipppii")
def cudnnSetConvolutionNdDescriptor(descriptor, dims, padding, stride, dilation, mode, sums):
    found = LIBRARY.found(descriptor, Convolution, BAD_PARAM)
    check(1 <= dims <= 6 and mode in (0, 1) and sums in (0, 1, 2))
    found.padding, found.stride, found.dilation = (ints(a, dims) for a in (padding, stride, dilation))
    check(min(found.padding) >= 0 and min(found.stride) >= 1 and min(found.dilation) >= 1)
    found.mode, found.sums = mode, sums


@LIBRARY.function("pi")
def cudnnSetConvolutionGroupCount(descriptor, groups):
    check(groups >= 1)
    LIBRARY.found(descriptor, Convolution, BAD_PARAM).groups = groups


@LIBRARY.function("pi")
def cudnnSetConvolutionMathType(descriptor, math):
    check(math in (0, 1, 2, 3))
    LIBRARY.found(descriptor, Convolution, BAD_PARAM).math = math


# --- algorithms ----------------------------------------------------------------------------------------------------

# kind -> (number, working memory for each element of the result, deterministic, serves channels last), the best first
ALGORITHMS = {
    "Forward": ((6, 8, 1, False), (1, 1, 1, True), (0, 0, 1, True)),
    "BackwardData": ((4, 8, 1, False), (0, 0, 0, True), (1, 2, 1, True)),
    "BackwardFilter": ((0, 0, 0, True), (3, 4, 0, False), (1, 2, 1, True)),
}
KINDS = {"Forward": (Tensor, Filter, Tensor), "BackwardData": (Filter, Tensor, Tensor),
         "BackwardFilter": (Tensor, Tensor, Filter)}  # fmt: skip


class Performance(ctypes.Structure):
    """`cudnnConvolutionFwdAlgoPerf_t` of cudnn_cnn.h."""

    _fields_ = (
        ("algo", ctypes.c_int), ("status", ctypes.c_int), ("time", ctypes.c_float), ("memory", ctypes.c_size_t),
        ("determinism", ctypes.c_int), ("mathType", ctypes.c_int), ("reserved", ctypes.c_int * 3),
    )  # fmt: skip


def problem(kind, first, second, third, convolution):
    """The descriptors of a call: (input, weights, output, convolution), checked against one another."""
    parts = [LIBRARY.found(d, k, BAD_PARAM) for d, k in zip((first, second, third), KINDS[kind], strict=True)]
    how = LIBRARY.found(convolution, Convolution, BAD_PARAM)
    check(all(p.shape is not None for p in parts) and how.padding is not None)
    x, w, y = {"Forward": (0, 1, 2), "BackwardData": (2, 0, 1), "BackwardFilter": (0, 2, 1)}[kind]
    x, w, y = parts[x], parts[w], parts[y]
    check(len(x.shape) == len(w.shape) == len(y.shape) == len(how.padding) + 2)
    check(x.dtype == w.dtype == y.dtype)
    check(how.sums == (1 if x.dtype == np.float64 else 0), NOT_SUPPORTED)
    check(x.shape[1] == w.shape[1] * how.groups and w.shape[0] % how.groups == 0)
    points = [
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, p, s, d in zip(x.shape[2:], w.shape[2:], how.padding, how.stride, how.dilation, strict=True)
    ]
    check((x.shape[0], w.shape[0], *points) == y.shape)
    last = packed(x.shape, True) == x.steps and packed(x.shape, False) != x.steps
    return x, w, y, how, last


def listed(kind, out, last, how, dtype):
    """What there is to say about each algorithm."""
    for number, words, same, either in ALGORITHMS[kind]:
        good = (either and dtype != np.float64) or not last
        math = FMA_MATH if how.math == FMA_MATH else 0 if dtype == np.float32 else 1
        yield Performance(number, 0 if good else NOT_SUPPORTED, -1.0, words * int(np.prod(out.shape)), same, math)


def answer(kind, descriptors, convolution, requested, count, results):
    check(requested >= 1 and count and results)
    x, w, y, how, last = problem(kind, *descriptors, convolution)
    out = {"Forward": y, "BackwardData": x, "BackwardFilter": w}[kind]
    found = sorted(listed(kind, out, last, how, x.dtype), key=lambda p: p.status)[:requested]
    ctypes.c_int.from_address(count).value = len(found)
    for i, one in enumerate(found):
        ctypes.memmove(results + i * ctypes.sizeof(Performance), ctypes.addressof(one), ctypes.sizeof(Performance))
    return {"kind": kind, "math": how.math}


def _functions_of(kind):
    def query(handle, first, second, convolution, third, requested, count, results):
        context(handle)
        return answer(kind, (first, second, third), convolution, requested, count, results)

    def trial(handle, first, _1, second, _2, convolution, third, _3, requested, count, results, work, size):
        context(handle)
        check(_1 and _2 and _3 and (work or not size), NULL_POINTER)
        check(graphs.current() is None, EXECUTION_FAILED)  # it waits for its trials
        return answer(kind, (first, second, third), convolution, requested, count, results)

    def run(handle, alpha, first, a, second, b, convolution, algorithm, work, size, beta, third, c):
        used = context(handle)
        check(alpha and beta and a and b and c, NULL_POINTER)
        x, w, y, how, last = problem(kind, first, second, third, convolution)
        sums = np.float64 if x.dtype == np.float64 else np.float32
        check(memory(alpha, sums, (1,), (1,), host=True)[0] == 1 and memory(beta, sums, (1,), (1,), host=True)[0] == 0)
        places = {"Forward": (a, b, c), "BackwardData": (c, a, b), "BackwardFilter": (a, c, b)}[kind]
        check(all(place % x.dtype.itemsize == 0 for place in places), MISALIGNED)
        out = {"Forward": y, "BackwardData": x, "BackwardFilter": w}[kind]
        chosen = {p.algo: p for p in listed(kind, out, last, how, x.dtype)}.get(algorithm)
        check(chosen is not None)
        check(not chosen.status, NOT_SUPPORTED)
        check(size >= chosen.memory and (work or not chosen.memory))
        geometry = [(at, d.dtype, d.shape, d.steps) for at, d in zip(places, (x, w, y), strict=True)]
        now = copy.copy(how)

        def again():
            if size:
                memory(work, np.uint8, (size,), (1,))[...] = 0xCD
            compute(kind, *(memory(*where) for where in geometry), now)

        graphs.launch(again, used.stream)
        return {"kind": kind, "algorithm": algorithm, "math": how.math, "last": last, "stream": used.stream,
                "work": size, "groups": how.groups}  # fmt: skip

    query.__name__ = f"cudnnGetConvolution{kind}Algorithm_v7"
    trial.__name__ = f"cudnnFindConvolution{kind}AlgorithmEx"
    run.__name__ = f"cudnnConvolution{kind}"
    LIBRARY.function("pppppipp")(query)
    LIBRARY.function("ppppppppipppz")(trial)
    LIBRARY.function("pppppppipzppp")(run)


for _kind in KINDS:
    _functions_of(_kind)


# --- the graph interface -------------------------------------------------------------------------------------------

# cudnnBackendAttributeType_t
ATTRIBUTES = {
    0: ctypes.c_void_p, 1: ctypes.c_int, 2: ctypes.c_bool, 3: ctypes.c_int64, 4: ctypes.c_float, 5: ctypes.c_double,
    6: ctypes.c_void_p, 7: ctypes.c_int, 8: ctypes.c_int, 11: ctypes.c_int, 15: ctypes.c_void_p,
}  # fmt: skip
# cudnnBackendDescriptorType_t -> the attributes it must have
BACKEND = {
    1: (100, 101, 102, 103, 104, 105, 106), 2: (), 3: (), 4: (200, 201), 5: (400, 401), 10: range(700, 706),
    11: range(712, 718), 12: range(706, 712), 15: (800, 801), 16: (1000, 1001), 17: (900, 901, 902, 903, 906),
}  # fmt: skip
# An operation's kind, and where it keeps (input, weights, output).
OPERATIONS = {10: ("Forward", (704, 703, 705)), 12: ("BackwardData", (710, 709, 711)),
              11: ("BackwardFilter", (716, 715, 717))}  # fmt: skip
TENSOR_CORE, DOWN_CONVERTED, NONDETERMINISTIC = 0, 1, 4  # cudnnBackendNumericalNote_t
# kind -> (index, working memory for each element of the result, notes, serves channels last), the best first; the last
# is found by the mode that serves otherwise.
ENGINES = {
    "Forward": ((61, 8, (TENSOR_CORE,), True), (28, 1, (), True), (7, 0, (), True)),
    "BackwardData": ((67, 2, (TENSOR_CORE, DOWN_CONVERTED), False), (58, 0, (), True), (7, 0, (), True)),
    "BackwardFilter": ((20, 0, (NONDETERMINISTIC,), True), (65, 4, (TENSOR_CORE,), False), (7, 0, (), True)),
}


class Described:
    """A descriptor of the graph interface."""

    def __init__(self, kind):
        self.kind, self.values, self.complete = kind, {}, False
        self.engine = self.graph = None  # of an engine, its configuration, or an execution plan

    def one(self, name):
        return self.values[name][0]


def described(number, *kinds, complete=True) -> Described:
    found = LIBRARY.found(number, Described, BAD_PARAM)
    check(found.kind in kinds if kinds else True)
    check(found.complete or not complete)
    return found


@LIBRARY.function("ip")
def cudnnBackendCreateDescriptor(kind, at):
    check(kind in BACKEND, NOT_SUPPORTED)
    LIBRARY.made(Described(kind), at, NULL_POINTER)


@LIBRARY.function("p")
def cudnnBackendDestroyDescriptor(number):
    described(number, complete=False)
    del LIBRARY.objects[number]


@LIBRARY.function("piilp")
def cudnnBackendSetAttribute(number, name, kind, count, values):
    found = described(number, complete=False)
    check(not found.complete and count >= 1 and values and kind in ATTRIBUTES)
    given = list((ATTRIBUTES[kind] * count).from_address(values))
    if kind == 15:
        given = [described(each) for each in given]
    found.values[name] = given


@LIBRARY.function("p")
def cudnnBackendFinalize(number):
    found = described(number, complete=False)
    check(all(name in found.values for name in BACKEND[found.kind]) and not found.complete)
    if found.kind == 15:
        check(len(found.values[801]) == 1 and found.values[801][0].kind in OPERATIONS, NOT_SUPPORTED)
        context(found.one(800))
    if found.kind == 5:
        context(found.one(400))
        chosen = found.one(401)
        found.engine, found.graph = chosen.engine, chosen.graph
        check(found.engine[3] or not parts(found.graph)[-1], NOT_SUPPORTED)
    found.complete = True


def parts(graph):
    """(kind, input, weights, output, convolution, whether channels lie last) of a graph, checked."""
    operation = graph.one(801)
    kind, places = OPERATIONS[operation.kind]
    first = min(BACKEND[operation.kind])
    check(operation.one(first) == 1 and operation.one(first + 1) == 0)
    tensors, how = [operation.one(place) for place in places], operation.one(first + 2)
    x, w, y = (Tensor() for _ in tensors)
    for made, given in zip((x, w, y), tensors, strict=True):
        check(given.kind == 17 and not any(given.values.get(907, [False])))
        made.dtype, made.shape, made.steps = DTYPES[given.one(901)], tuple(given.values[902]), tuple(given.values[903])
    check(len({given.one(906) for given in tensors}) == 3)
    found = Convolution()
    found.padding, found.stride, found.dilation = (tuple(how.values[name]) for name in (105, 103, 102))
    check(tuple(how.values[104]) == found.padding and how.one(106) == len(found.padding))
    found.mode, found.sums, found.groups = how.one(101), how.one(100), x.shape[1] // w.shape[1]
    check(x.dtype == w.dtype == y.dtype and len(x.shape) == len(w.shape) == len(y.shape) == len(found.padding) + 2)
    check(found.sums == 0 and x.dtype != np.float64, NOT_SUPPORTED)
    check(x.shape[1] == w.shape[1] * found.groups and w.shape[0] % found.groups == 0)
    points = [
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, p, s, d in zip(x.shape[2:], w.shape[2:], found.padding, found.stride, found.dilation, strict=True)
    ]
    check((x.shape[0], w.shape[0], *points) == y.shape)
    last = packed(x.shape, True) == x.steps and packed(x.shape, False) != x.steps
    check(all(each.steps == packed(each.shape, last) for each in (x, w, y)), NOT_SUPPORTED)
    return kind, x, w, y, found, last


@LIBRARY.function("piilpp")
def cudnnBackendGetAttribute(number, name, kind, requested, count, values):
    found = described(number, complete=False)
    check(count and requested >= 1 and values)

    def write(given):
        (ATTRIBUTES[kind] * len(given)).from_address(values)[:] = given

    if (found.kind, name) == (4, 202) and kind == 15:
        check(found.complete)
        graph, mode = found.one(201), found.one(200)
        engines = ENGINES[parts(graph)[0]]
        engines = engines[:-1] if mode == 3 else engines[-1:]
        targets = (ctypes.c_void_p * requested).from_address(values)
        for target, engine in zip(targets, engines):
            made = described(target, 3, complete=False)
            made.engine, made.graph, made.complete = engine, graph, True
        number = len(engines)
    elif (found.kind, name) == (3, 300) and kind == 15:
        check(found.complete)
        made = described((ctypes.c_void_p * 1).from_address(values)[0], 2, complete=False)
        made.engine, made.complete, number = found.engine, True, 1
    elif (found.kind, name) == (2, 1303) and kind == 11:
        check(found.complete)
        write(found.engine[2][:requested])
        number = len(found.engine[2])
    elif (found.kind, name) == (5, 402) and kind == 3:
        check(found.complete)
        write([work_of(found)])
        number = 1
    else:
        raise Refuse(BAD_PARAM)
    ctypes.c_int64.from_address(count).value = number


def work_of(plan):
    kind, x, w, y, *_ = parts(plan.graph)
    out = {"Forward": y, "BackwardData": x, "BackwardFilter": w}[kind]
    return plan.engine[1] * int(np.prod(out.shape))


@LIBRARY.function("ppp")
def cudnnBackendExecute(handle, plan, pack):
    used, plan, pack = context(handle), described(plan, 5), described(pack, 16)
    kind, x, w, y, how, last = parts(plan.graph)
    names = [plan.graph.one(801).one(place).one(906) for place in OPERATIONS[plan.graph.one(801).kind][1]]
    places = dict(zip(pack.values[1000], pack.values[1001], strict=True))
    places = [places[name] for name in names]
    check(all(places), NULL_POINTER)
    check(not any(place % 16 for place in places), MISALIGNED)
    size, work = work_of(plan), pack.values.get(1003, [None])[0]
    check(work or not size, NULL_POINTER)
    geometry = [(at, d.dtype, d.shape, d.steps) for at, d in zip(places, (x, w, y), strict=True)]
    how.math = 0 if TENSOR_CORE in plan.engine[2] else FMA_MATH

    def again():
        if size:
            memory(work, np.uint8, (size,), (1,))[...] = 0xCD
        compute(kind, *(memory(*where) for where in geometry), how)

    graphs.launch(again, used.stream)
    return {"kind": kind, "engine": plan.engine[0], "last": last, "stream": used.stream, "work": size,
            "groups": how.groups}  # fmt: skip


def compute(kind, x, w, y, how):
    """The convolution tap by tap; whichever of the three arrays is the result is written."""
    out = {"Forward": y, "BackwardData": x, "BackwardFilter": w}[kind]
    x, w, y = (wide(v) for v in (x, w, y))
    if x.dtype == np.float32 and how.math != FMA_MATH and out.dtype == np.float32:
        x, w, y = as_tf32(x), as_tf32(w), as_tf32(y)
    inside = (..., *[slice(p, p + n) for n, p in zip(x.shape[2:], how.padding, strict=True)])
    padded = np.zeros((*x.shape[:2], *[n + 2 * p for n, p in zip(x.shape[2:], how.padding, strict=True)]), x.dtype)
    if kind != "BackwardData":
        padded[inside] = x
    grouped = padded.reshape(len(x), how.groups, -1, *padded.shape[2:])
    weights = w.reshape(how.groups, -1, *w.shape[1:])
    result = y.reshape(len(y), how.groups, -1, *y.shape[2:])
    total = {"Forward": np.zeros_like(result), "BackwardData": grouped, "BackwardFilter": np.zeros_like(weights)}[kind]
    with np.errstate(all="ignore"):
        for tap in product(*map(range, w.shape[2:])):
            flip = tap if how.mode else tuple(k - 1 - t for t, k in zip(tap, w.shape[2:], strict=True))
            starts = [t * d for t, d in zip(tap, how.dilation, strict=True)]
            ends = [begin + (n - 1) * s + 1 for begin, n, s in zip(starts, y.shape[2:], how.stride, strict=True)]
            window = (..., *map(slice, starts, ends, how.stride))
            if kind == "Forward":
                total += np.einsum("ngc...,goc->ngo...", grouped[window], weights[(..., *flip)])
            elif kind == "BackwardData":
                total[window] += np.einsum("ngo...,goc->ngc...", result, weights[(..., *flip)])
            else:
                seen = grouped[window].reshape(*grouped.shape[:3], -1)
                total[(..., *flip)] += np.einsum("ngop,ngcp->goc", result.reshape(*result.shape[:3], -1), seen)
    total = padded[inside] if kind == "BackwardData" else total
    out[...] = total.reshape(out.shape).astype(out.dtype)
