"""Convolutions by cuDNN 9's graph interface: what `cudnn.py` asks first.

cuDNN's older interface searches for an engine in every call, which takes the host 50 to 250 µs (on an H200); here that
is done once. A convolution is described as a graph of one operation, cuDNN lists engines for it, the best first, and
the first one that suits the settings becomes an *execution plan*; running a plan takes 13 to 45 µs. The engines are the
same.

Source: NVIDIA's header cudnn_graph.h (cuDNN 9).
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from typing import Any

import cupy

from tensorgrad.kernels.cuda.runtime import libraries
from tensorgrad.kernels.cuda.runtime.calls import Functions, Refused


def words(status: int) -> str:
    """Describes a status of cuDNN."""
    function = libraries.load("cudnn").cudnnGetErrorString
    function.restype, function.argtypes = ctypes.c_char_p, [ctypes.c_int]
    return function(status).decode()


SIGNATURES = {
    "cudnnBackendCreateDescriptor": "ip", "cudnnBackendDestroyDescriptor": "p", "cudnnBackendFinalize": "p",
    "cudnnBackendSetAttribute": "piilp", "cudnnBackendGetAttribute": "piilpp", "cudnnBackendExecute": "ppp",
}  # fmt: skip
LIBRARY = Functions("cudnn", SIGNATURES, words)

# From cudnnDataType_t. float64 is left to the older interface.
TYPES = {"float32": 0, "float16": 2, "bfloat16": 9}
# From cudnnBackendDescriptorType_t.
CONVOLUTION, ENGINE, ENGINE_CONFIGURATION, HEURISTICS, EXECUTION_PLAN, GRAPH, VARIANT_PACK, TENSOR = (
    1, 2, 3, 4, 5, 15, 16, 17
)  # fmt: skip
# From cudnnBackendAttributeType_t, with their C types.
HANDLE, DATA_TYPE, BOOLEAN, INT64, FLOAT, ADDRESS, MODE, HEURISTIC, NOTE, DESCRIPTOR = 0, 1, 2, 3, 4, 6, 7, 8, 11, 15
IN_C: dict[int, Any] = {
    HANDLE: ctypes.c_void_p, DATA_TYPE: ctypes.c_int, BOOLEAN: ctypes.c_bool, INT64: ctypes.c_int64,
    FLOAT: ctypes.c_float, ADDRESS: ctypes.c_void_p, MODE: ctypes.c_int, HEURISTIC: ctypes.c_int, NOTE: ctypes.c_int,
    DESCRIPTOR: ctypes.c_void_p,
}  # fmt: skip
# From cudnnBackendAttributeName_t.
OF_CONVOLUTION = {
    "sums": 100, "mode": 101, "dilations": 102, "strides": 103, "after": 104, "before": 105, "dimensions": 106
}  # fmt: skip
HEURISTIC_MODE, HEURISTIC_GRAPH, HEURISTIC_RESULTS = 200, 201, 202
CONFIGURED_ENGINE, PLAN_HANDLE, PLAN_CONFIGURATION, PLAN_WORKSPACE = 300, 400, 401, 402
GRAPH_HANDLE, GRAPH_OPERATIONS = 800, 801
TENSOR_ALIGNMENT, TENSOR_TYPE, TENSOR_SHAPE, TENSOR_STRIDES, TENSOR_NAME, TENSOR_VIRTUAL = 900, 901, 902, 903, 906, 907
PACK_NAMES, PACK_ADDRESSES, PACK_WORKSPACE = 1000, 1001, 1003
ENGINE_NOTES = 1303
# kind of convolution -> its operation, and that one's first attribute; alpha, beta, the convolution, and the positions
# of the arrays in the order (input, weights, output) follow.
OPERATIONS = {"forward": (10, 700, (4, 3, 5)), "input": (12, 706, (4, 3, 5)), "weight": (11, 712, (4, 3, 5))}
# From cudnnConvolutionMode_t, cudnnBackendHeurMode_t, cudnnBackendNumericalNote_t.
CROSS_CORRELATION = 1
MODES = 3, 2  # cuDNN's model, then what serves otherwise
TENSOR_CORE, DOWN_CONVERTED, NONDETERMINISTIC = 0, 1, 4

ALIGNMENT = 16  # bytes; that of every address
MOST_ENGINES, MOST_NOTES = 32, 32
BAD_PARAMETER, NOT_SUPPORTED, INTERNAL = 2, 3, 4  # the thousands of the statuses of engines that do not serve


class Descriptor:
    """A descriptor with these attributes {name: (type, values)}; complete, unless it is for cuDNN to fill in."""

    def __init__(self, kind: int, attributes: dict[int, tuple] | None = None):
        made = ctypes.c_void_p()
        LIBRARY.cudnnBackendCreateDescriptor(kind, ctypes.addressof(made))
        self.address = made.value
        for name, (type_, values) in (attributes or {}).items():
            given = (IN_C[type_] * len(values))(*[v.address if isinstance(v, Descriptor) else v for v in values])
            LIBRARY.cudnnBackendSetAttribute(self.address, name, type_, len(values), ctypes.addressof(given))
        if attributes is not None:
            LIBRARY.cudnnBackendFinalize(self.address)

    def read(self, name: int, type_: int, most: int, into: Any = None) -> list:
        """Returns an attribute's values, of which there are at most so many."""
        found = (IN_C[type_] * most)() if into is None else into
        count = ctypes.c_int64()
        LIBRARY.cudnnBackendGetAttribute(
            self.address, name, type_, most, ctypes.addressof(count), ctypes.addressof(found)
        )
        return list(found[: min(count.value, most)])

    def __del__(self, ending=sys.is_finalizing):
        if not ending() and getattr(self, "address", None):
            LIBRARY.cudnnBackendDestroyDescriptor(self.address)


def _tensor(name: int, code: int, shape, last: bool) -> Descriptor:
    order = (0, *range(2, len(shape)), 1) if last else range(len(shape))
    strides, step = [0] * len(shape), 1
    for axis in reversed(tuple(order)):
        strides[axis], step = step, step * shape[axis]
    return Descriptor(TENSOR, {
        TENSOR_TYPE: (DATA_TYPE, [code]), TENSOR_SHAPE: (INT64, shape), TENSOR_STRIDES: (INT64, strides),
        TENSOR_NAME: (INT64, [name]), TENSOR_ALIGNMENT: (INT64, [ALIGNMENT]), TENSOR_VIRTUAL: (BOOLEAN, [False]),
    })  # fmt: skip


def _graph(handle: int, kind: str, name: str, shapes, last: bool, stride, padding, dilation) -> tuple:
    """Returns the graph of one convolution, and what it refers to."""
    arrays = [_tensor(i + 1, TYPES[name], shape, last) for i, shape in enumerate(shapes)]
    of = OF_CONVOLUTION
    how = Descriptor(CONVOLUTION, {
        of["sums"]: (DATA_TYPE, [TYPES["float32"]]), of["mode"]: (MODE, [CROSS_CORRELATION]),
        of["dilations"]: (INT64, dilation), of["strides"]: (INT64, stride), of["before"]: (INT64, padding),
        of["after"]: (INT64, padding), of["dimensions"]: (INT64, [len(stride)]),
    })  # fmt: skip
    operation, first, places = OPERATIONS[kind]
    made = Descriptor(operation, {
        first: (FLOAT, [1.0]), first + 1: (FLOAT, [0.0]), first + 2: (DESCRIPTOR, [how]),
        **{first + place: (DESCRIPTOR, [array]) for place, array in zip(places, arrays)},
    })  # fmt: skip
    graph = Descriptor(GRAPH, {GRAPH_HANDLE: (HANDLE, [handle]), GRAPH_OPERATIONS: (DESCRIPTOR, [made])})
    return graph, (*arrays, how, made)


def _configurations(graph: Descriptor) -> Iterator[Descriptor]:
    """Yields cuDNN's recommendations for a graph, the best first."""
    for mode in MODES:
        asked = Descriptor(HEURISTICS, {HEURISTIC_GRAPH: (DESCRIPTOR, [graph]), HEURISTIC_MODE: (HEURISTIC, [mode])})
        filled = [Descriptor(ENGINE_CONFIGURATION) for _ in range(MOST_ENGINES)]
        places = (ctypes.c_void_p * MOST_ENGINES)(*[each.address for each in filled])
        yield from filled[: len(asked.read(HEURISTIC_RESULTS, DESCRIPTOR, MOST_ENGINES, places))]


def _notes(configuration: Descriptor) -> list[int]:
    """Returns what cuDNN notes about an engine's numbers."""
    engine = Descriptor(ENGINE)
    configuration.read(CONFIGURED_ENGINE, DESCRIPTOR, 1, (ctypes.c_void_p * 1)(engine.address))
    return engine.read(ENGINE_NOTES, NOTE, MOST_NOTES)


def _cannot(refused: Refused) -> bool:
    """Returns whether cuDNN reports only that this does not serve."""
    return refused.status // 1000 in (BAD_PARAMETER, NOT_SUPPORTED, INTERNAL)


class Plan:
    """The execution plan for one kind of convolution, and one combination of shapes and settings.

    `shapes` are those of the input, the weights and the output, of at least four dimensions; `tf32`: whether float32
    may be rounded to TensorFloat-32; `same`: whether results must be the same each time.
    """

    def __init__(self, handle: int, kind, name, shapes, last, stride, padding, dilation, tf32: bool, same: bool):
        self._forbidden = {NONDETERMINISTIC} if same else set()
        if name == "float32" and not tf32:
            self._forbidden |= {TENSOR_CORE, DOWN_CONVERTED}
        self._order = {"forward": (0, 1, 2), "input": (1, 2, 0), "weight": (0, 2, 1)}[kind]
        self._names = (ctypes.c_int64 * 3)(*[i + 1 for i in self._order])
        self._places, self._workspace = (ctypes.c_uint64 * 3)(), ctypes.c_void_p()
        integer, long = ctypes.c_int, ctypes.c_int64
        self._attributes = [
            (integer(name), integer(kind), long(count), ctypes.c_void_p(ctypes.addressof(values)))
            for name, kind, count, values in (
                (PACK_NAMES, INT64, 3, self._names), (PACK_ADDRESSES, ADDRESS, 3, self._places),
                (PACK_WORKSPACE, ADDRESS, 1, self._workspace),
            )
        ]  # fmt: skip
        self._calls = [
            getattr(LIBRARY, f"cudnnBackend{name}").in_c
            for name in ("CreateDescriptor", "SetAttribute", "Finalize", "Execute", "DestroyDescriptor")
        ]  # fmt: skip
        self._pack = ctypes.c_void_p()
        self._pack_at = ctypes.c_void_p(ctypes.addressof(self._pack))
        self._plan: tuple | None = None
        try:
            graph, self._parts = _graph(handle, kind, name, shapes, last, stride, padding, dilation)
            self._others = self._made(handle, graph)
            self._plan = next(self._others, None)
        except Refused as refused:
            if not _cannot(refused):
                raise

    def _made(self, handle: int, graph: Descriptor) -> Iterator[tuple]:
        """Yields (execution plan, its address, bytes of workspace) of the engines that serve, the best first."""
        for configuration in _configurations(graph):
            try:
                if self._forbidden.intersection(_notes(configuration)):
                    continue
                plan = Descriptor(
                    EXECUTION_PLAN, {PLAN_HANDLE: (HANDLE, [handle]), PLAN_CONFIGURATION: (DESCRIPTOR, [configuration])}
                )
                yield plan, ctypes.c_void_p(plan.address), plan.read(PLAN_WORKSPACE, INT64, 1)[0]
            except Refused as refused:
                if not _cannot(refused):
                    raise

    def run(self, use, first, second, out, about) -> bool:
        """Writes the result into `out`, from the arrays in the older interface's order. Returns False if it cannot."""
        places = self._places
        places[0], places[1], places[2] = first.data.ptr, second.data.ptr, out.data.ptr
        if (places[0] | places[1] | places[2]) % ALIGNMENT:
            return False
        while self._plan is not None:
            _, plan, size = self._plan
            try:
                memory = cupy.cuda.alloc(size) if size else None
            except cupy.cuda.memory.OutOfMemoryError:
                return False
            self._workspace.value = memory.ptr if memory else None
            create, put, finalize, execute, destroy = self._calls
            pack = self._pack
            status = create(_VARIANT_PACK, self._pack_at)
            if not status:
                names, addresses, workspace = self._attributes
                status = (
                    put(pack, *names) or put(pack, *addresses) or put(pack, *workspace) or finalize(pack)
                    or execute(use.in_c, plan, pack)
                )  # fmt: skip
                destroy(pack)
            if not status:
                return True
            if status // 1000 not in (BAD_PARAMETER, NOT_SUPPORTED):
                raise Refused(f"cudnnBackendExecute of {about()}: {words(status)}", status)
            self._plan = next(self._others, None)
        return False


_VARIANT_PACK = ctypes.c_int(VARIANT_PACK)
