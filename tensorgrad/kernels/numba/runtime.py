"""Gets kernels ready in the background; NumPy serves meanwhile.

A process of its own compiles them (compiler.py) and keeps them in the user's cache folder, by versions and processor; a
thread of the program reads them from there. Numba is imported in that thread too, so that a program that never meets a
large array never waits for it.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import platform
import re
import sys
import threading
import warnings
import zlib
from functools import cache
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from tensorgrad.kernels.numba.compiler import Compiler

_lock = threading.Lock()
_queue: SimpleQueue = SimpleQueue()
_thread: threading.Thread | None = None
_child = False  # in a forked child nothing is compiled: a lock of the compiler's may have been held at the fork


def _forked() -> None:
    global _child, _thread
    _child, _thread = True, None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def cache_folder() -> Path:
    """Where compiled kernels are kept: TENSORGRAD_CACHE, or the user's cache folder."""
    given = os.environ.get("TENSORGRAD_CACHE")
    if given:
        return Path(given)
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA", str(Path.home()))
    elif sys.platform == "darwin":
        base = str(Path.home() / "Library" / "Caches")
    else:
        base = os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))
    return Path(base) / "tensorgrad"


def _texts(family: str) -> dict[str, bytes]:
    """The text of a file of this folder and of those that it imports, by name.

    Numba itself looks at a kernel's own file only, not at the files of the functions that the kernel calls.
    """
    folder, found, open_names = Path(__file__).parent, {}, [family]
    while open_names:
        name = open_names.pop()
        if name not in found and (folder / f"{name}.py").exists():
            found[name] = (folder / f"{name}.py").read_bytes()
            for several, one in _IMPORT.findall(found[name].decode()):
                open_names += [one] if one else re.split(r"[\s,()]+", several)
    return found


_IMPORT = re.compile(r"from tensorgrad\.kernels\.numba(?: import (\([^)]*\)|.*)|\.(\w+) import)")


@cache
def _key(family: str) -> str:
    """What a family's cache depends on: versions, the processor, and the texts of its kernels."""
    import llvmlite
    import llvmlite.binding
    import numba
    import numpy

    text = b"".join(text for _, text in sorted(_texts(family).items()))
    python = ".".join(platform.python_version_tuple()[:2])
    processor = llvmlite.binding.get_host_cpu_name()
    return (
        f"python{python}-numba{numba.__version__}-llvmlite{llvmlite.__version__}-numpy{numpy.__version__}-{processor}"
        f"-{family}-{zlib.crc32(text):08x}"
    )


def _folder(family: str) -> Path | None:
    """Where a family's compiled kernels are kept; None if nothing can be written there."""
    try:
        folder = cache_folder() / _key(family)
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return folder


def compiled(kernel: str) -> Any:
    """The kernel "family.name", compiled now or read from the cache."""
    import numba

    with _lock:
        family, _, name = kernel.partition(".")
        before, folder = numba.config.CACHE_DIR, _folder(family)
        try:
            if folder is not None:  # otherwise Numba's own choice
                numba.config.CACHE_DIR = str(folder)
            made = importlib.import_module(f"tensorgrad.kernels.numba.{family}").KERNELS[name]()
        finally:
            numba.config.CACHE_DIR = before
        if folder is not None:
            with contextlib.suppress(OSError):
                (folder / f"{name}.ready").touch()
        return made


def in_cache(kernel: str) -> bool | None:
    """Whether a kernel only has to be read; None where nothing can be kept."""
    family, _, name = kernel.partition(".")
    folder = _folder(family)
    return None if folder is None else (folder / f"{name}.ready").exists()


def request(row: Any) -> None:
    """Has a row's kernel compiled in the background. Returns at once."""
    global _thread
    if _child or row.asked:
        return
    row.asked = True
    _queue.put(row)
    with _starting:
        if _thread is None or not _thread.is_alive():
            _thread = threading.Thread(target=_serve, name="tensorgrad compiler", daemon=True)
            _thread.start()


_starting = threading.Lock()
_IDLE = 5.0  # seconds after which the compiler's process is ended


def _serve() -> None:
    compiler = Compiler()
    while True:
        try:
            row = _queue.get(timeout=_IDLE)
        except Empty:
            compiler.close()
            row = _queue.get()
        try:
            if in_cache(row.kernel) is False:
                compiler.compile(row.kernel)
            row.ready = compiled(row.kernel)
        except Exception as error:  # NumPy serves on
            _failed.append(row)
            warnings.warn(f"tensorgrad: the compiled kernel of {row.op} is not used: {error!s:.300}", stacklevel=1)


_failed: list[Any] = []  # the rows whose kernel could not be compiled


def wait() -> None:
    """Waits until everything that was requested is compiled, or cannot be (for tests and measurements)."""
    import time

    from tensorgrad.kernels.numba.table import ROWS

    while any(
        row.asked and row.ready is None and row not in _failed and _thread is not None and _thread.is_alive()
        for row in ROWS
    ):
        time.sleep(0.01)
