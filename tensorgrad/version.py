"""Versions: that of the PyTorch release that is followed, and this library's own.

>>> torch.version.__version__
'2.13.0'
>>> torch.version.tensorgrad.count(".")
2
"""

from __future__ import annotations

from tensorgrad.system.lazy_modules import whole

__version__ = "2.13.0"  # the PyTorch release that serves as the specification
tensorgrad = "0.1.0"  # of this library; pyproject.toml reads it here

cuda: str | None  # determined on first access, see below
hip: str | None = None
rocm: str | None = None
xpu: str | None = None
git_version = "tensorgrad"
debug = False

__all__ = ["__version__", "cuda", "debug", "git_version", "hip", "rocm", "tensorgrad", "xpu"]


def __getattr__(name: str):
    if name == "cuda":  # the CUDA version that CuPy uses; None if GPUs cannot be used
        from tensorgrad.cuda.devices import module_or_none

        cupy = module_or_none()
        number = 0 if cupy is None else cupy.cuda.runtime.runtimeGetVersion()
        return f"{number // 1000}.{number % 1000 // 10}" if number else None
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), "cuda"})


whole(__name__)
