"""A stand-in for libcublasLt, as far as products with a bias go: objects, attributes, one advised algorithm.

The bias is added to the sums before they are rounded. Handles are those of the stand-in for cuBLAS. A product that does
not fit the alignments that its advice was asked for is refused.

Source: NVIDIA's header cublasLt.h (CUDA 13).
"""

from __future__ import annotations

import ctypes

import numpy as np

from tests.emulator import cublas, graphs
from tests.emulator.cublas import COMPUTE, DTYPES, INVALID_VALUE, NOT_SUPPORTED, TF32, check, number
from tests.emulator.library import Library, as_tf32, memory, wide

LIBRARY = Library(cublas.INTERNAL_ERROR)
NO_ADVICE = False  # whether to say that no algorithm serves

# attribute -> its C type
PRODUCT = {3: ctypes.c_int32, 4: ctypes.c_int32, 7: ctypes.c_uint32, 8: ctypes.c_uint64}
PREFERENCE = {1: ctypes.c_uint64, 5: ctypes.c_uint32, 6: ctypes.c_uint32, 7: ctypes.c_uint32, 8: ctypes.c_uint32}
BIAS, SUM_OF_B = 4, 512  # CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_BGRADB
WORKSPACE = 4096


class Product:
    def __init__(self, compute, scale):
        self.compute, self.scale, self.attributes = compute, scale, {3: 0, 4: 0, 7: 1, 8: 0}


class Layout:
    def __init__(self, code, rows, columns, pitch):
        self.code, self.rows, self.columns, self.pitch = code, rows, columns, pitch


class Preference:
    def __init__(self):
        self.attributes = {1: 0, 5: 256, 6: 256, 7: 256, 8: 256}


class Advice(ctypes.Structure):
    """`cublasLtMatmulHeuristicResult_t`"""

    _fields_ = (
        ("algo", ctypes.c_uint64 * 8), ("workspaceSize", ctypes.c_size_t), ("state", ctypes.c_int),
        ("wavesCount", ctypes.c_float), ("reserved", ctypes.c_int * 4),
    )  # fmt: skip


def _destroy(kind, name):
    def destroy(at):
        LIBRARY.found(at, kind, INVALID_VALUE)
        del LIBRARY.objects[at]

    destroy.__name__ = f"cublasLt{name}Destroy"
    LIBRARY.function("p")(destroy)


for _kind, _name in ((Product, "MatmulDesc"), (Layout, "MatrixLayout"), (Preference, "MatmulPreference")):
    _destroy(_kind, _name)


@LIBRARY.function("pii")
def cublasLtMatmulDescCreate(at, compute, scale):
    check(compute in COMPUTE and scale in (0, 1, 2))
    LIBRARY.made(Product(compute, scale), at, INVALID_VALUE)


@LIBRARY.function("pilll")
def cublasLtMatrixLayoutCreate(at, code, rows, columns, pitch):
    check(code in DTYPES and rows > 0 and columns > 0 and pitch >= rows)
    LIBRARY.made(Layout(code, rows, columns, pitch), at, INVALID_VALUE)


@LIBRARY.function("p")
def cublasLtMatmulPreferenceCreate(at):
    LIBRARY.made(Preference(), at, INVALID_VALUE)


def _set(found, types, attribute, value, size):
    check(attribute in types and size == ctypes.sizeof(types[attribute]) and value)
    found.attributes[attribute] = types[attribute].from_address(value).value


@LIBRARY.function("pipz")
def cublasLtMatmulDescSetAttribute(at, attribute, value, size):
    _set(LIBRARY.found(at, Product, INVALID_VALUE), PRODUCT, attribute, value, size)


@LIBRARY.function("pipz")
def cublasLtMatmulPreferenceSetAttribute(at, attribute, value, size):
    _set(LIBRARY.found(at, Preference, INVALID_VALUE), PREFERENCE, attribute, value, size)


def problem(product, *layouts):
    """The descriptors of a product, checked against one another: (product, layouts, (m, n, k))."""
    product = LIBRARY.found(product, Product, INVALID_VALUE)
    a, b, c, d = (LIBRARY.found(layout, Layout, INVALID_VALUE) for layout in layouts)
    kind, allowed = COMPUTE[product.compute]
    check(a.code == b.code == c.code == d.code and a.code in allowed, NOT_SUPPORTED)
    check(product.scale == {np.float16: 2, np.float32: 0, np.float64: 1}[kind], NOT_SUPPORTED)
    check(product.attributes[7] in (1, BIAS, SUM_OF_B))
    (m, k), (inner, n) = (
        (x.columns, x.rows) if product.attributes[flag] else (x.rows, x.columns) for x, flag in ((a, 3), (b, 4))
    )
    check(k == inner and (c.rows, c.columns) == (d.rows, d.columns) == (m, n))
    return product, (a, b, d), (m, n, k)


def alignment(address):
    return min(address & -address, 256)


@LIBRARY.function("pppppppipp")
def cublasLtMatmulAlgoGetHeuristic(handle, product, a, b, c, d, preference, requested, results, count):
    cublas.context(handle)
    product, *_ = problem(product, a, b, c, d)
    wishes = LIBRARY.found(preference, Preference, INVALID_VALUE).attributes
    check(requested >= 1 and results and count)
    check(not NO_ADVICE, NOT_SUPPORTED)
    needed = WORKSPACE if wishes[1] >= WORKSPACE else 0
    promised = (wishes[5], wishes[6], wishes[8], alignment(product.attributes[8]))
    found = Advice((ctypes.c_uint64 * 8)(0xA190, *promised), needed, 0, 1.0)
    ctypes.memmove(results, ctypes.addressof(found), ctypes.sizeof(found))
    ctypes.c_int.from_address(count).value = 1


@LIBRARY.function("ppppppppppppppzp")
def cublasLtMatmul(handle, product, alpha, a, ad, b, bd, beta, c, cd, d, dd, algorithm, workspace, size, stream):
    cublas.context(handle)
    product, layouts, (m, n, k) = problem(product, ad, bd, cd, dd)
    check(all((a, b, c, d, algorithm)))
    advised = Advice.from_address(algorithm)
    check(advised.algo[0] == 0xA190 and size >= advised.workspaceSize and (workspace or not size))
    bias = product.attributes[8]
    check(product.attributes[7] in (BIAS, SUM_OF_B) and bias)
    check(all(place % promised == 0 for place, promised in zip((a, b, d, bias), advised.algo[1:5], strict=True)))
    kind, _ = COMPUTE[product.compute]
    check(number(alpha, kind, layouts[2].code) == 1 and number(beta, kind, layouts[2].code) == 0)
    transposed, compute = {flag: product.attributes[flag] for flag in (3, 4)}, product.compute
    geometry = [
        (at, DTYPES[x.code], (x.rows, x.columns), (1, x.pitch)) for at, x in zip((a, b, d), layouts, strict=True)
    ]

    sums = product.attributes[7] == SUM_OF_B

    def run():
        left, right, result = (memory(*where) for where in geometry)
        vector = memory(bias, geometry[2][1], (n, 1) if sums else (m, 1), (1, 0))
        if size:
            memory(workspace, np.uint8, (size,), (1,))[...] = 0xCD
        left, right = (wide(x.T if transposed[flag] else x) for x, flag in ((left, 3), (right, 4)))
        if compute == TF32:
            left, right = as_tf32(left), as_tf32(right)
        with np.errstate(all="ignore"):
            if sums:
                vector[:, 0] = right.sum(0).astype(vector.dtype)
            result[...] = (left @ right + (0 if sums else wide(vector))).astype(result.dtype)

    graphs.launch(run, stream)
    return {"sizes": (m, n, k), "compute": product.compute, "stream": stream}
