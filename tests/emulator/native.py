"""Kernels in CUDA C, compiled by g++ and run on the CPU: the emulator's RawModule and RawKernel.

A program is compiled once, with cuda_host.h, into a library in build/emulator; its name is a hash of everything that
went in. What the machine checks while it runs is said there. Arguments are checked here: their number, and each one's
type, which a GPU takes on trust.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import mmap
import os
import re
import shutil
import subprocess
import time
from functools import cache
from pathlib import Path

import numpy as np

from tests.emulator import graphs
from tests.emulator.runtime import LIVE, _pinned

HERE = Path(__file__).parent
HEADERS = ("cuda_host.h", "cuda_math.h")  # the first includes the second
MACHINE = "cuda_machine.cpp"
UNUSED = 7 * 86400.0  # seconds after which a compiled program is removed
COMPILER = shutil.which("g++")
_FLAGS = (
    "-std=c++17", "-fPIC", "-fvisibility=hidden", "-fno-strict-aliasing", "-fno-exceptions", "-fno-rtti",
    "-U_FORTIFY_SOURCE", "-ffp-contract=off", "-w",
)  # fmt: skip
MACHINE_FLAGS = (*_FLAGS, "-O2", "-c")  # compiled once, and in every access of every program
FLAGS = (
    *_FLAGS, "-O0", "-shared",  # g++ takes longer for most programs than they run
    "-fsanitize=kernel-address", "--param=asan-stack=0", "--param=asan-globals=0",
    "--param=asan-instrumentation-with-call-threshold=0",
    "-fsanitize=alignment,bounds,integer-divide-by-zero", "-fsanitize-recover=alignment,bounds,integer-divide-by-zero",
)  # fmt: skip
# Without those of C++ and of sanitizers (the machine has what these call): g++ would search them for every program.
LIBRARIES = ("-nostdlib", "-lm", "-lc", "-lgcc")

# Bytes for each of the 1,024 threads of a block; the system gives what is touched. No power of two: the tops of all
# stacks would share a few lines of the cache.
STACK = 256 * 1024 + 4096 + 320
THREADS = 1024
SURE = 256  # threads whose registers always suffice: a kernel for more says so by __launch_bounds__
SHARED_WITHOUT_ASKING, SHARED_MOST = 48 * 1024, 227 * 1024  # as on compute capability 9.0
SHARED_ROOM = 256 * 1024


class CompileError(Exception):
    """What g++ says of a program."""


class CUDADriverError(RuntimeError):
    """A launch that a GPU would refuse, or that did what no kernel may do."""


class Launch(ctypes.Structure):
    """What a launch is told; the same structure is in cuda_host.h."""

    _fields_ = [
        ("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("shared_bytes", ctypes.c_uint64),
        ("shared", ctypes.c_void_p), ("stacks", ctypes.c_void_p), ("stack_bytes", ctypes.c_uint64),
        ("ranges", ctypes.c_int64), ("arguments", ctypes.c_int64), ("range", ctypes.c_void_p),
        ("message", ctypes.c_char_p), ("values", ctypes.POINTER(ctypes.c_void_p)),
    ]  # fmt: skip


# --- compiling -----------------------------------------------------------------------------------------------------


@cache
def _folder() -> Path:
    """The folder of compiled programs, from which those that no run of the last days has used are removed."""
    folder = HERE.parents[1] / "build" / "emulator"
    folder.mkdir(parents=True, exist_ok=True)
    for file in folder.iterdir():
        with contextlib.suppress(OSError):  # another process has removed it
            if time.time() - file.stat().st_mtime > UNUSED:
                shutil.rmtree(file) if file.is_dir() else file.unlink()
    return folder


def _key(*more: str) -> str:
    """The name of what is made of the machine's files, and of more."""
    files = [(HERE / name).read_text() for name in (*HEADERS, MACHINE)]
    parts = (*files, *MACHINE_FLAGS, *FLAGS, *LIBRARIES, *more)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


@cache
def _machine() -> Path:
    """A folder with cuda_host.h, which g++ has parsed already (many programs are shorter), and the compiled machine."""
    folder = _folder() / _key()
    folder.mkdir(exist_ok=True)
    os.utime(folder)
    for name in HEADERS:
        _put(folder / name, lambda made, name=name: shutil.copy(HERE / name, made))
    header = folder / HEADERS[0]
    _put(
        header.with_suffix(".h.gch"),
        lambda made: _compiler("", *FLAGS, "-x", "c++-header", str(header), "-o", str(made)),
    )
    _put(folder / "machine.o", lambda made: _compiler("", *MACHINE_FLAGS, str(HERE / MACHINE), "-o", str(made)))
    return folder


def _put(file: Path, write) -> None:
    """Writes a file that is not there yet; other processes see all of it, or nothing."""
    if not file.exists():
        made = file.with_suffix(f"{file.suffix}.{os.getpid()}")
        write(made)
        made.replace(file)


@cache
def compiled(code: str) -> ctypes.PyDLL:
    """The library that g++ makes of a program. Raises: CompileError with the compiler's words."""
    library = _folder() / f"{_key(code)}.so"
    try:
        os.utime(library)  # it is used
    except FileNotFoundError:
        kernels = "\n".join(f"EMULATED_KERNEL({name}, {most})" for name, most in kernels_of(code))
        made = library.with_suffix(f".{os.getpid()}")
        text = f'#include "cuda_host.h"\n#line 1 "program"\n{code}\n{kernels}'
        machine = _machine()
        linked = "-x", "none", str(machine / "machine.o"), *LIBRARIES
        _compiler(text, *FLAGS, "-I", str(machine), "-x", "c++", "-", *linked, "-o", str(made))
        made.replace(library)
    return ctypes.PyDLL(str(library))  # holds Python's lock: the machine is one, and its state is the library's


def kernels_of(code: str) -> list[tuple[str, str]]:
    """The names of a program's kernels, those that macros make among them, and their __launch_bounds__ (or 0)."""
    plain = _compiler(code, "-E", "-P", "-DEMULATED", "-x", "c++", "-")
    found = re.findall(r"__global__\s+void\s+(?:__launch_bounds__\s*\((.*?)\)\s+)?(\w+)\s*\(", plain)
    return [(name, bounds.partition(",")[0] or "0") for bounds, name in found]


def _compiler(text: str, *options: str) -> str:
    if COMPILER is None:
        raise CompileError("the emulator of a GPU needs g++")
    result = subprocess.run([COMPILER, *options], input=text, capture_output=True, text=True)
    if result.returncode:
        raise CompileError(result.stderr)
    return result.stdout


# --- arguments -------------------------------------------------------------------------------------------------------


def _kind(dtype) -> str:
    return {"b": "b1", "V": f"s{dtype.itemsize}"}.get(dtype.kind, f"{dtype.kind}{dtype.itemsize}")


def _fits_pointer(parameter: str, dtype) -> bool:
    """Whether a pointer may point to an array of this dtype: bytes and structures may point to anything."""
    target = parameter[1:]
    if target[0] in "*vs" and target != "s2":
        return True
    if target == "s2":  # one of the two half types
        return dtype.itemsize == 2 and dtype.kind in "fV"
    if target[0] in "iub" and target[1:] == "1":
        return True
    if target[0] in "iu":
        return dtype.itemsize == int(target[1:]) or dtype.kind == "V"
    return (dtype.kind == target[0] and dtype.itemsize == int(target[1:])) or (
        dtype.kind == "c" and dtype.itemsize == 2 * int(target[1:])
    )


def _pointer(value):
    """(address, bytes) of what CuPy passes as a pointer, or None."""
    if hasattr(value, "strides") and hasattr(value, "data") and not isinstance(value, (np.ndarray, np.generic)):
        low = high = 0
        for n, stride in zip(value.shape, value.strides):
            low, high = low + min(0, (n - 1) * stride), high + max(0, (n - 1) * stride)
        start = value.data.ptr
        return start, (start + low, start + high + value.dtype.itemsize if value.size else start + low)
    if hasattr(value, "ptr") and hasattr(value, "mem"):
        return value.ptr, (value.ptr, value.mem.ptr + value.mem.size)
    return None


def _scalar(value):
    """A number as NumPy's scalar of the type that CuPy passes it as. Raises: TypeError for anything else.

    Structures are passed as NumPy arrays of one element.
    """
    if isinstance(value, np.ndarray) and value.size == 1:
        return value
    if isinstance(value, np.generic) and not isinstance(value, np.void):
        return value
    for python, numpy in ((bool, np.bool_), (int, np.int64), (float, np.float64), (complex, np.complex128)):
        if value.__class__ is python:
            return numpy(value)
    raise TypeError(f"Unsupported type {type(value)}")


def _pack(name, parameters, args):
    """The arguments as C wants them. Raises: TypeError where they are not what the kernel takes."""
    if len(args) != len(parameters):
        raise TypeError(f"{name} takes {len(parameters)} arguments ({' '.join(parameters)}), got {len(args)}")
    cells, ranges = [], []
    for i, (parameter, value) in enumerate(zip(parameters, args)):
        place = _pointer(value)
        if value is None:
            place = (0, (0, 0))
        if place is not None:
            given = "null" if value is None else getattr(value, "dtype", "memory")
            if parameter[0] != "*" or (hasattr(value, "dtype") and not _fits_pointer(parameter, value.dtype)):
                raise TypeError(f"{name}: argument {i} is an array of {given}, the kernel takes {parameter}")
            cells.append(np.array(place[0], np.uint64))
            ranges.append(place[1])
            continue
        number = _scalar(value)
        if not (_kind(number.dtype) == parameter or (parameter[0] == "*" and _kind(number.dtype) in ("i8", "u8"))):
            raise TypeError(f"{name}: argument {i} is {_kind(number.dtype)} ({number!r}), the kernel takes {parameter}")
        cells.append(np.array(number))
    return cells, ranges


# --- CuPy's classes --------------------------------------------------------------------------------------------------


@cache
def _stacks():
    """(the memory, address of the shared memory, address of the fibers' stacks); the first is a multiple of 4,096."""
    memory = mmap.mmap(-1, SHARED_ROOM + THREADS * STACK)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):  # a page of 2 MiB for each stack would have to be cleared
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    return memory, start, start + SHARED_ROOM


class Function:
    """One kernel of a program, as CuPy's RawKernel: `function(grid, block, args, shared_mem=bytes)`."""

    def __init__(self, code: str, name: str):
        self._code, self.name = code, name
        self.max_dynamic_shared_size_bytes = SHARED_WITHOUT_ASKING
        self._run = None

    @property
    def kernel(self):
        self.compile()
        return self

    def compile(self, log_stream=None) -> None:
        if self._run is None:
            library = compiled(self._code)
            try:
                run, parameters = library[f"run__{self.name}"], library[f"parameters__{self.name}"]
            except AttributeError:
                raise CUDADriverError(f"CUDA_ERROR_NOT_FOUND: named symbol not found: {self.name}") from None
            described = ctypes.create_string_buffer(4096)
            self._bound = parameters(described)
            self._parameters = described.value.decode().split()
            self._run = run

    def __call__(self, grid, block, args, *, shared_mem=0):
        self.compile()
        grid, block = (tuple(size) + (1,) * (3 - len(size)) for size in (grid, block))
        if not isinstance(args, tuple):
            raise TypeError(f"args must be a tuple, got {type(args)}")
        self._check_sizes(grid, block, shared_mem)
        cells, ranges = _pack(self.name, self._parameters, args)
        graphs.launch(lambda: self._launch(grid, block, shared_mem, cells, ranges))

    def _launch(self, grid, block, shared_mem, cells, ranges):
        live = sorted((start, start + size) for start, size in (*LIVE.copy().items(), *_pinned.copy().items()))
        for low, high in ranges:  # a graph replays the launch, and keeps nothing alive
            if low < high and not any(start <= low and high <= end for start, end in live):
                raise RuntimeError("emulator: a graph uses memory that was freed")
        known = np.array(ranges + live or [(0, 0)], np.uint64)
        _, shared, stacks = _stacks()
        message = ctypes.create_string_buffer(512)
        launch = Launch(
            (ctypes.c_uint * 3)(*grid), (ctypes.c_uint * 3)(*block), shared_mem, shared, stacks, STACK,
            len(ranges) + len(live), len(ranges), known.ctypes.data, ctypes.cast(message, ctypes.c_char_p),
            (ctypes.c_void_p * len(cells))(*(cell.ctypes.data for cell in cells)),
        )  # fmt: skip
        if self._run(ctypes.byref(launch)):
            raise CUDADriverError(f"{self.name}: {message.value.decode()}")

    def _check_sizes(self, grid, block, shared_mem):
        if not all(n.__class__ is int for n in (*grid, *block, shared_mem)):
            raise TypeError(f"{self.name}: sizes must be ints, got {grid}, {block}, {shared_mem}")
        if not all(0 < n <= most for n, most in zip(grid, (2**31 - 1, 65535, 65535))):
            raise CUDADriverError(f"CUDA_ERROR_INVALID_VALUE: invalid argument: {self.name}, grid {grid}")
        if not all(0 < n <= most for n, most in zip(block, (1024, 1024, 64))) or np.prod(block) > THREADS:
            raise CUDADriverError(f"CUDA_ERROR_INVALID_VALUE: invalid argument: {self.name}, block {block}")
        if np.prod(block) > (self._bound or SURE):
            raise CUDADriverError(
                f"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES: {self.name}: {np.prod(block)} threads, where __launch_bounds__ "
                f"says {self._bound or 'nothing'}: there may not be registers for them all"
            )
        if not 0 <= shared_mem <= min(self.max_dynamic_shared_size_bytes, SHARED_MOST):
            raise CUDADriverError(
                f"CUDA_ERROR_INVALID_VALUE: invalid argument: {self.name}, {shared_mem} bytes of shared memory where "
                f"{self.max_dynamic_shared_size_bytes} are allowed"
            )


class RawKernel(Function):
    """CuPy's class of that name: one kernel with its program."""

    def __init__(self, code, name, options=(), backend="nvrtc", *, translate_cucomplex=False,
                 enable_cooperative_groups=False, jitify=False):  # fmt: skip
        super().__init__(code, name)
        self.code, self.options, self.backend = code, options, backend


class RawModule:
    """CuPy's class of that name: a program, whose kernels `get_function` gives by name."""

    def __init__(self, *, code=None, path=None, options=(), backend="nvrtc", translate_cucomplex=False,
                 enable_cooperative_groups=False, name_expressions=None, jitify=False):  # fmt: skip
        if path is not None or code is None:
            raise NotImplementedError("the emulator compiles programs that are given as code")
        if not isinstance(options, tuple):
            raise TypeError("options must be a tuple of strings")
        self.code, self.options, self.backend = code, options, backend

    def compile(self, log_stream=None) -> None:
        compiled(self.code)

    def get_function(self, name: str) -> Function:
        compiled(self.code)
        return Function(self.code, name)
