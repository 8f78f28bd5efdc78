"""Every CUDA program compiles, with NVIDIA's compiler, for the GPUs that count: no GPU is needed for that.

For compute capability 9.0 all are assembled, and checked for registers that do not suffice. For 8.0 each family's
settings are compiled in one dtype, and the first of a family assembled: more would take a minute.
"""

import ctypes
import importlib.util
import os
import re
from functools import cache
from pathlib import Path

import pytest

from tensorgrad.kernels.cuda import expressions
from tensorgrad.kernels.cuda.runtime import program


@cache
def _library():
    """The compiler, from the package nvidia-cuda-nvrtc or from a folder that NVRTC_PATH names; None without."""
    folders = [Path(os.environ["NVRTC_PATH"])] if "NVRTC_PATH" in os.environ else []
    spec = importlib.util.find_spec("nvidia")
    folders += [Path(place) for place in (spec.submodule_search_locations or [])] if spec else []
    found = [file for folder in folders for file in sorted(folder.rglob("libnvrtc.so.*"), reverse=True)]
    if not found:
        return None
    for builtins in found[0].parent.glob("libnvrtc-builtins.so*"):
        ctypes.CDLL(str(builtins))
    return ctypes.CDLL(str(found[0]))


@pytest.fixture(scope="module")
def nvrtc():
    library = _library()
    if library is None:
        pytest.skip("nvidia-cuda-nvrtc, NVIDIA's compiler, is not installed")
    return library


# Programs of which a kernel keeps a few bytes of registers in memory, and may.
SPILLS = {("attention", "float32"), ("loss", "float32"), ("loss", "float64")}


def compiled(nvrtc, code: str, architecture: str) -> tuple[bytes, str]:
    """The binary of a program (or its text in PTX), and what was said of it.

    Raises: AssertionError with the compiler's words on failure.
    """
    handle = ctypes.c_void_p()
    assert nvrtc.nvrtcCreateProgram(ctypes.byref(handle), code.encode(), b"program.cu", 0, None, None) == 0
    try:
        wanted = (*program.OPTIONS, f"--gpu-architecture={architecture}", "--ptxas-options=-v")
        options = [option.encode() for option in wanted]
        status = nvrtc.nvrtcCompileProgram(handle, len(options), (ctypes.c_char_p * len(options))(*options))
        said = _read(nvrtc, handle, "ProgramLog").decode(errors="replace").rstrip("\0")
        assert status == 0, said
        return _read(nvrtc, handle, "CUBIN" if architecture.startswith("sm") else "PTX"), said
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(handle))


def _read(nvrtc, handle, what: str) -> bytes:
    size = ctypes.c_size_t()
    assert getattr(nvrtc, f"nvrtcGet{what}Size")(handle, ctypes.byref(size)) == 0
    text = ctypes.create_string_buffer(size.value)
    assert getattr(nvrtc, f"nvrtcGet{what}")(handle, text) == 0
    return text.raw


def _name(variant) -> str:
    family, dtype, settings = variant
    return "-".join((family, dtype, *(re.sub(r"\W+", "_", str(value))[:40] for value in settings.values())))


def test_all_families_are_listed():
    sources = {file.stem for file in program.SOURCES.glob("*.cu")}
    assert sources == set(program.FAMILIES)


@pytest.mark.parametrize("variant", list(program.variants()), ids=_name)
def test_compiles(nvrtc, variant):
    family, dtype, settings = variant
    code = program.text(family, dtype, **settings)
    binary, said = compiled(nvrtc, code, "sm_90")
    assert binary[:4] == b"\x7fELF"
    spilled = re.findall(r"(\d+) bytes spill stores", said)
    assert spilled, "the assembler said nothing of the kernels"
    assert (family, dtype) in SPILLS or not any(map(int, spilled)), said


def _once_for_all_dtypes():
    """One variant for each family and settings, in the dtypes in turn."""
    alike: dict = {}
    for variant in program.variants():
        alike.setdefault((variant[0], str(variant[2])), []).append(variant)
    return [variants[i % len(variants)] for i, variants in enumerate(alike.values())]


@pytest.mark.parametrize("variant", _once_for_all_dtypes(), ids=_name)
def test_compiles_for_older_gpus(nvrtc, variant):
    """Up to NVIDIA's intermediate language; the assembler, which takes most of the time, sees the first of a family."""
    family, dtype, settings = variant
    first = variant == next(v for v in _once_for_all_dtypes() if v[0] == family)
    made, _ = compiled(nvrtc, program.text(family, dtype, **settings), "sm_80" if first else "compute_80")
    assert made[:4] == b"\x7fELF" if first else b".target sm_80" in made


@pytest.mark.parametrize("dtype", program.FLOATING)
def test_all_expressions_compile(nvrtc, dtype):
    """The expressions of pointwise.cu in one program, one function each."""
    before, marker, _ = program.text("pointwise", dtype, **expressions.settings("elu_grad")).partition("COMPUTED")
    assert marker
    functions = [
        f"__device__ auto {name}_({', '.join(_parameters(row.operands))}, A p, A q, A r) {{ return {row.text}; }}"
        for name, row in expressions.EXPRESSIONS.items()
    ]
    calls = [
        f"store(to++, (A){name}_({', '.join('abc'[: len(row.operands)])}, a, b, c));"
        for name, row in expressions.EXPRESSIONS.items()
    ]
    kernel = f'extern "C" __global__ void all(T* to, A a, A b, A c) {{ {" ".join(calls)} }}'
    assert compiled(nvrtc, "\n".join((before, *functions, kernel)), "sm_90")


def _parameters(operands: str) -> list[str]:
    return [f"{'A' if kind == 'T' else 'bool'} {name}" for kind, name in zip(operands, "abc")]


def test_an_error_is_told(nvrtc):
    with pytest.raises(AssertionError, match="expected a"):
        compiled(nvrtc, "__global__ void broken() { 1 + ; }", "sm_90")
