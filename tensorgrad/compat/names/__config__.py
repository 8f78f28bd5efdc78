"""`torch.__config__`: a readable description of the libraries in use."""

from __future__ import annotations

import os
import platform

import numpy as np

__all__ = ["parallel_info", "show"]


def show() -> str:
    """Returns the versions in use, the CPU instruction set that NumPy uses, and the BLAS behind it, as text.

    >>> print(torch.__config__.show())
    PyTorch's programming model in pure Python:
      - tensorgrad ...
    """
    from tensorgrad import version
    from tensorgrad.backends.cpu import get_cpu_capability

    lines = [
        f"tensorgrad {version.tensorgrad}, which follows PyTorch {version.__version__}",
        f"Python {platform.python_version()}",
        f"NumPy {np.__version__}",
        *_algebra(),
        f"CPU capability usage: {get_cpu_capability()}",
    ]
    if version.cuda is not None:
        lines.append(f"CUDA {version.cuda}")
    return "\n".join(["PyTorch's programming model in pure Python:", *(f"  - {line}" for line in lines), ""])


def parallel_info() -> str:
    """Returns the number of threads and the settings that determine it, as text.

    >>> print(torch.__config__.parallel_info())
    tensorgrad:
        get_num_threads() : ...
    """
    from tensorgrad.settings import get_num_interop_threads, get_num_threads

    lines = [
        "tensorgrad:",
        f"\tget_num_threads() : {get_num_threads()}",
        f"\tget_num_interop_threads() : {get_num_interop_threads()}",
        *_algebra(),
        f"os.cpu_count() : {os.cpu_count()}",
        "Environment variables:",
        *(f"\t{name} : {os.environ.get(name, '[not set]')}" for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")),
    ]
    return "\n".join([*lines, ""])


def _cxx_flags() -> str:
    """The flags of the C++ compiler: empty, since there is none."""
    return ""


def _algebra() -> list[str]:
    """The BLAS libraries that NumPy uses, with their thread counts."""
    from tensorgrad.system import blas

    return [f"{library.name} : {library.threads()} threads" for library in blas.libraries()]
