"""Finds and opens NVIDIA's libraries: cuBLAS and cuDNN.

They come with CUDA, with wheels (`nvidia-cublas`, `nvidia-cudnn-cu13`, ...) or with conda. They are searched for in
this order: `cuda.pathfinder`, if installed (CuPy 14 brings it); the wheels' folders; the system's loader.
"""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache
from pathlib import Path

# Library -> its major version (0: that of CUDA), the wheels' folders, and the package to install ({} is CUDA's
# version).
KNOWN = {
    "cublas": (0, ("cu{}", "cublas"), {12: "nvidia-cublas-cu12", 13: "nvidia-cublas"}),
    "cublasLt": (0, ("cu{}", "cublas"), {12: "nvidia-cublas-cu12", 13: "nvidia-cublas"}),
    "cudnn": (9, ("cudnn",), {12: "nvidia-cudnn-cu12", 13: "nvidia-cudnn-cu13"}),
}


class Missing(RuntimeError):
    """A library is not installed."""


@cache
def load(name: str):
    """Opens the library "cublas", "cublasLt", "cudnn" or "cuda" (the driver), once.

    Raises: Missing with one line that says what to install.
    """
    return open_library(name)


@cache
def driver():
    """Opens the driver's library, which comes with the driver. None if the system does not find it."""
    try:
        return ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return None


def present(name: str) -> bool:
    """Returns whether the library can be opened."""
    try:
        load(name)
    except Missing:
        return False
    return True


def open_library(name: str):
    """Finds and opens a library. The tests' GPU emulator substitutes its own libraries here."""
    if name == "cuda":
        if driver() is None:
            raise Missing("NVIDIA's driver was not found: install it, or add its folder to LD_LIBRARY_PATH")
        return driver()
    cuda = _cuda_version()
    if name == "cudnn":  # it looks for them next to itself; they may be elsewhere
        for needed in ("cublasLt", "cublas"):
            present(needed)
    version, folders, packages = KNOWN[name]
    version = version or cuda
    for attempt in (_by_pathfinder, _from_wheels, _from_system):
        library = attempt(name, version, [folder.format(cuda) for folder in folders])
        if library is not None:
            return library
    raise Missing(
        f"{_file(name, version)} was not found: pip install {packages.get(cuda, packages[13])} (CUDA {cuda}), or add "
        f"the folder that contains it to {'PATH' if os.name == 'nt' else 'LD_LIBRARY_PATH'}"
    )


def _cuda_version() -> int:
    """Returns the major version of the CUDA that CuPy uses."""
    try:
        import cupy
    except ImportError:
        raise Missing("NVIDIA's libraries are used through CuPy: pip install cupy-cuda13x (or cupy-cuda12x)") from None
    return cupy.cuda.runtime.runtimeGetVersion() // 1000


def _file(name: str, version: int) -> str:
    return f"{name}64_{version}.dll" if os.name == "nt" else f"lib{name}.so.{version}"


def _by_pathfinder(name, version, folders):
    try:
        from cuda import pathfinder  # type: ignore[import-not-found]

        found = pathfinder.load_nvidia_dynamic_lib(name).abs_path
    except (ImportError, RuntimeError, ValueError):  # not installed, an unknown library, or no file found
        return None
    # It may belong to a different CUDA version than CuPy's.
    return _opened(found) if found and f"{version}" in Path(found).name else None


def _from_wheels(name, version, folders):
    for entry in sys.path:
        for folder in folders:
            for within in ("lib", "bin", "bin/x86_64"):
                path = Path(entry, "nvidia", folder, within, _file(name, version))
                if path.is_file():
                    return _opened(str(path))
    return None


def _from_system(name, version, folders):
    return _opened(_file(name, version))


def _opened(path: str):
    try:
        return ctypes.CDLL(path)
    except OSError:
        return None
