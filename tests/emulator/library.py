"""Stand-ins for C libraries, written in Python and called as C is: through function pointers, with raw arguments.

What the library under test passes goes through `ctypes` twice: into the C call by the signature that *it* declares, and
out of it by the one that the stand-in took from the public header. Where the two differ, the arguments come out wrong.
"""

from __future__ import annotations

import ctypes
import itertools
import traceback

import ml_dtypes
import numpy as np

from tests.emulator import runtime

# p: pointer or handle, i: int or enum, l: int64_t or long long, z: size_t, d: double
LETTERS = {
    "p": ctypes.c_void_p, "i": ctypes.c_int, "l": ctypes.c_int64, "z": ctypes.c_size_t, "d": ctypes.c_double,
}  # fmt: skip
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


class Refuse(Exception):
    """A stand-in's function ends with this status."""

    def __init__(self, status: int):
        self.status = status


class Library:
    """A library's functions as attributes, as those of `ctypes.CDLL`; `calls` notes what was called with what."""

    def __init__(self, broken: int):
        self._functions, self._broken, self._kept = {}, broken, []
        self.signatures, self.calls = {}, []
        self._numbers = itertools.count(0x7000_0000_0000, 64)
        self.objects = {}  # handle or descriptor -> what it stands for

    def made(self, thing, at: int, null_pointer: int):
        """Stores a new object's handle where the pointer `at` says."""
        if not at:
            raise Refuse(null_pointer)
        number = next(self._numbers)
        self.objects[number] = thing
        ctypes.c_void_p.from_address(at).value = number

    def found(self, number, kind: type, status: int):
        """The object behind a handle. Raises: Refuse for what is none of its kind."""
        thing = self.objects.get(number)
        if not isinstance(thing, kind):
            raise Refuse(status)
        return thing

    def function(self, signature: str):
        """A decorator: the function becomes one of the library's, with this signature."""

        def decorate(body):
            name = body.__name__

            def entry(*arguments):
                try:
                    note = body(*[a if a is not None else 0 for a in arguments])
                except Refuse as refused:
                    return refused.status
                except Exception:  # OutOfBounds, or a defect: a callback cannot raise through C
                    traceback.print_exc()
                    return self._broken
                self.calls.append((name, note))
                return 0

            callback = ctypes.CFUNCTYPE(ctypes.c_int, *[LETTERS[letter] for letter in signature])(entry)
            self._kept.append(callback)
            self.signatures[name] = signature
            # A pointer without declared arguments: whoever asks for the function declares them.
            self._functions[name] = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.cast(callback, ctypes.c_void_p).value)
            return body

        return decorate

    def __getattr__(self, name):
        try:
            return self.__dict__["_functions"][name]
        except KeyError:
            raise AttributeError(f"undefined symbol: {name}") from None

    def take_calls(self):
        """What was called since the last time: [(function, note)]."""
        calls, self.calls = self.calls, []
        return calls


class OutOfBounds(Exception):
    """An address that no allocation of the emulated GPU holds: the real one would fault, or worse."""


def memory(address: int, dtype, shape, steps, host=False) -> np.ndarray:
    """The memory at an address of the device (or of the host) as an array; `steps` count elements.

    Raises: OutOfBounds unless all of it lies in one allocation.
    """
    dtype = np.dtype(dtype)
    if 0 in shape:
        return np.empty(shape, dtype)
    reach = 1 + sum((n - 1) * s for n, s in zip(shape, steps, strict=True))
    end = address + reach * dtype.itemsize
    live = runtime.LIVE.copy()  # in one go: the garbage collector may free memory meanwhile
    if not host and not any(at <= address and end <= at + size for at, size in live.items()):
        raise OutOfBounds(f"{reach} elements of {dtype} at {address:#x} are in no allocation")
    flat = np.ctypeslib.as_array((ctypes.c_uint8 * (reach * dtype.itemsize)).from_address(address)).view(dtype)
    return np.lib.stride_tricks.as_strided(flat, shape, [s * dtype.itemsize for s in steps])


def as_tf32(x: np.ndarray) -> np.ndarray:
    """float32 (or the parts of complex64) rounded to the 10 bits of mantissa that TF32 keeps."""
    parts = np.ascontiguousarray(x).view(np.float32)
    bits = parts.view(np.uint32)
    rounded = ((bits + 0xFFF + ((bits >> 13) & 1)) & np.uint32(0xFFFFE000)).view(np.float32)
    return np.where(np.isfinite(parts), rounded, parts).view(x.dtype).reshape(x.shape)


def wide(x: np.ndarray) -> np.ndarray:
    """16-bit floats in float32."""
    return x.astype(np.float32) if x.dtype.itemsize == 2 else x


def install() -> None:
    """Puts the stand-ins where `tensorgrad.kernels.cuda.runtime.libraries` opens libraries."""
    from tensorgrad.kernels.cuda.runtime import libraries
    from tests.emulator import cublas, cublaslt, cudnn, graphs

    stand_ins = {
        "cublas": cublas.LIBRARY, "cublasLt": cublaslt.LIBRARY, "cudnn": cudnn.LIBRARY, "cuda": graphs.Driver,
    }  # fmt: skip
    libraries.open_library = stand_ins.__getitem__
    libraries.driver = lambda: None  # CuPy launches, and checks the arguments
    libraries.load.cache_clear()
