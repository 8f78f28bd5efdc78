"""Matrix products with a vector, in one launch by cuBLASLt: what a linear layer computes, and its gradients.

Forward, a vector is added to each row before the sums are rounded and written, so the result is written once and never
read. Backward, the sums of the rows of the first factor, which is read anyway, are the gradient of that vector. A
product's descriptors, and the algorithm that cuBLASLt recommends for it, are cached per combination of shapes and
types. The handle and the workspace are those of cuBLAS.
"""

from __future__ import annotations

import ctypes
import sys

from tensorgrad.kernels.cuda.runtime import cublas
from tensorgrad.kernels.cuda.runtime.calls import Functions, Refused

SIGNATURES = {
    "cublasLtMatmulDescCreate": "pii", "cublasLtMatmulDescDestroy": "p", "cublasLtMatmulDescSetAttribute": "pipz",
    "cublasLtMatrixLayoutCreate": "pilll", "cublasLtMatrixLayoutDestroy": "p",
    "cublasLtMatmulPreferenceCreate": "p", "cublasLtMatmulPreferenceDestroy": "p",
    "cublasLtMatmulPreferenceSetAttribute": "pipz",
    "cublasLtMatmulAlgoGetHeuristic": "pppppppipp", "cublasLtMatmul": "ppppppppppppppzp",
}  # fmt: skip
LIBRARY = Functions("cublasLt", SIGNATURES, cublas.LIBRARY.words)

# From cublasLtMatmulDescAttributes_t, cublasLtEpilogue_t, cublasLtMatmulPreferenceAttributes_t.
TRANSPOSE_A, TRANSPOSE_B, EPILOGUE, BIAS_POINTER = 3, 4, 7, 8
ADD_BIAS, SUM_OF_B = 4, 512  # CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_BGRADB
MOST_WORKSPACE, ALIGNMENT_A, ALIGNMENT_B, ALIGNMENT_C, ALIGNMENT_D = 1, 5, 6, 7, 8

NOT_SUPPORTED = 15
MOST_PLANS = 1024


class Advice(ctypes.Structure):
    """An algorithm recommended by cuBLASLt: `cublasLtMatmulHeuristicResult_t`."""

    _fields_ = (
        ("algorithm", ctypes.c_uint64 * 8), ("workspace", ctypes.c_size_t), ("state", ctypes.c_int),
        ("waves", ctypes.c_float), ("reserved", ctypes.c_int * 4),
    )  # fmt: skip


class Described:
    """A cuBLASLt object of the kind "MatmulDesc", "MatrixLayout" or "MatmulPreference"."""

    def __init__(self, kind: str, *arguments):
        self.kind, made = kind, ctypes.c_void_p()
        getattr(LIBRARY, f"cublasLt{kind}Create")(ctypes.addressof(made), *arguments, about=arguments)
        self.address = made.value

    def set(self, attribute: int, value) -> None:
        """Sets an attribute to a C number."""
        call = getattr(LIBRARY, f"cublasLt{self.kind}SetAttribute")
        call(self.address, attribute, ctypes.addressof(value), ctypes.sizeof(value), about=(attribute, value.value))

    def __del__(self, ending=sys.is_finalizing):
        if not ending() and hasattr(self, "address"):
            getattr(LIBRARY, f"cublasLt{self.kind}Destroy")(self.address)


class Plan:
    """A product for one combination of shapes, types and alignments, with `room` bytes of workspace."""

    def __init__(self, use, epilogue, kind, compute, room, transposed, sizes, pitches, alignments):
        m, n, k = sizes
        self.product = Described("MatmulDesc", compute, kind.sums)
        for attribute, flag in zip((TRANSPOSE_A, TRANSPOSE_B), transposed, strict=True):
            self.product.set(attribute, ctypes.c_int32(flag))
        self.product.set(EPILOGUE, ctypes.c_int32(epilogue))
        # The recommendation depends on the alignment of the vector's address; the vector itself is not used.
        self.product.set(BIAS_POINTER, ctypes.c_void_p(alignments[3]))
        stored = [(k, m) if transposed[0] else (m, k), (n, k) if transposed[1] else (k, n), (m, n)]
        self.layouts = [
            Described("MatrixLayout", kind.code, *shape, pitch) for shape, pitch in zip(stored, pitches, strict=True)
        ]
        wishes = Described("MatmulPreference")
        wishes.set(MOST_WORKSPACE, ctypes.c_uint64(room))
        for attribute, which in ((ALIGNMENT_A, 0), (ALIGNMENT_B, 1), (ALIGNMENT_C, 2), (ALIGNMENT_D, 2)):
            wishes.set(attribute, ctypes.c_uint32(alignments[which]))
        a, b, out = (layout.address for layout in self.layouts)
        advice, count = Advice(), ctypes.c_int()
        try:
            LIBRARY.cublasLtMatmulAlgoGetHeuristic(
                use.address, self.product.address, a, b, out, out, wishes.address, 1, ctypes.addressof(advice),
                ctypes.addressof(count), about=f"{kind.name}, sizes {sizes}",
            )  # fmt: skip
        except Refused as refused:
            if refused.status != NOT_SUPPORTED:
                raise
        self.advice = advice if count.value and not advice.state else None
        # What each call passes, as C numbers, which ctypes takes faster than Python's.
        self.in_c = [ctypes.c_void_p(each.address) for each in (self.product, *self.layouts)]
        self.algorithm = ctypes.c_void_p(ctypes.addressof(advice)), ctypes.c_size_t(advice.workspace)
        self.vector = ctypes.c_void_p()
        self.bias = (
            self.in_c[0], ctypes.c_int(BIAS_POINTER), ctypes.c_void_p(ctypes.addressof(self.vector)),
            ctypes.c_size_t(ctypes.sizeof(self.vector)),
        )  # fmt: skip


def biased(a, b, bias, out, tf32=None) -> bool:
    """Computes `out = a @ b + bias` for matrices, with a vector added to each row. Returns False if unsupported.

    All are of one dtype of cublas.TYPES, on the current device; `out` and `bias` are contiguous.

    Raises: RuntimeError with the shapes if cuBLASLt fails.
    """
    return _product(ADD_BIAS, a, b, bias, out, tf32)


def summed(a, b, sums, out, tf32=None) -> bool:
    """Computes `out = a @ b`, and in `sums` the sum of each row of `a`. Returns False if unsupported.

    Arguments and errors are those of `biased`.
    """
    return _product(SUM_OF_B, a, b, sums, out, tf32)


def _product(epilogue: int, a, b, vector, out, tf32) -> bool:
    kind = cublas.TYPES[a.dtype]
    compute, math_mode = cublas.computing(kind, tf32)
    if math_mode:
        return False
    use = cublas.handle()
    # Column-major: outᵀ = bᵀ aᵀ, and the vector is added to every column.
    first, second, third, fourth = b.data.ptr, a.data.ptr, out.data.ptr, vector.data.ptr
    alignments = _LARGEST
    if (first | second | third | fourth) & 255:
        alignments = tuple([min(place & -place, 256) for place in (first, second, third, fourth)])
    memory, room = use.workspaces[use.stream]  # of the stream: smaller where memory was short
    key = epilogue, kind, compute, room, a.shape, a.strides, b.shape, b.strides, alignments
    plan = use.plans.get(key)
    if plan is None:
        if kind.parts > 1:
            return False
        readable = cublas.readable(a), cublas.readable(b)
        if readable[0] is not a or readable[1] is not b:
            return _product(epilogue, *readable, vector, out, tf32)
        plan = _planned(use, key, a, b)
    else:
        use.plans.move_to_end(key)
    if plan.advice is None:
        return False
    plan.vector.value = fourth
    LIBRARY.cublasLtMatmulDescSetAttribute(*plan.bias)
    product, left, right, result = plan.in_c
    LIBRARY.cublasLtMatmul(
        use.in_c, product, cublas.factor(1, kind, compute), first, left, second, right,
        cublas.factor(0, kind, compute), third, result, third, result, plan.algorithm[0],
        memory.ptr if memory else None, plan.algorithm[1], use.stream or None,
        about=lambda: f"{kind.name} matrices {a.shape} @ {b.shape}, vector {vector.shape}",
    )  # fmt: skip
    return True


_LARGEST = (256,) * 4  # alignments


def _planned(use, key, a, b) -> Plan:
    """Makes the handle's plan for a product; a new plan evicts the least recently used one."""
    epilogue, kind, compute, room, *_, alignments = key
    left, right = (cublas.layout(x.shape, x.strides, x.itemsize) for x in (a, b))
    sizes, pitches = (b.shape[1], a.shape[0], a.shape[1]), (right[1], left[1], max(b.shape[1], 1))
    made = use.plans[key] = Plan(use, epilogue, kind, compute, room, (right[0], left[0]), sizes, pitches, alignments)
    if len(use.plans) > MOST_PLANS:
        use.plans.popitem(last=False)
    return made
