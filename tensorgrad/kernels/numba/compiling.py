"""The compiler process: compiles kernels, compares them with NumPy, and stores them in the cache.

The comparison runs whole programs (verify.py), so this file is above all others. The program talks to it through a
pipe, from below (runtime/compiler.py).
"""

from __future__ import annotations

import gc
import json
import os
import sys
import warnings
from functools import partial
from pathlib import Path
from typing import Any

from tensorgrad.kernels.numba.runtime import compiler, loading

_libraries: dict[str, Any] = {}  # what this process has compiled, by family


def compile_into(kernel: str, where: Path) -> None:
    """Compiles a kernel, compares its results with NumPy's, and stores it in the cache folder `where`."""
    from tensorgrad.kernels.numba import verify
    from tensorgrad.kernels.numba.runtime import cache, internals

    family, _, name = kernel.rpartition(".")
    if where not in cache.places():
        cache.use(where)
    with loading.LOCK, cache.lock(where, family):
        library = cache.read(family)
        if name in library.proven:
            return
        known = _libraries.setdefault(family, library)
        known.parts = library.parts | known.parts
        known.proven |= library.proven
        known.seconds = library.seconds
        before = dict(internals.STAGES)
        made = loading.load(kernel, known)
        with internals.stage("comparison"):
            verify.check(kernel, made, partial(_other_kernel, known))
        for stage, seconds in internals.STAGES.items():
            known.seconds[stage] = known.seconds.get(stage, 0.0) + seconds - before.get(stage, 0.0)
        known.proven.add(name)
        cache.write(known, where)
        cache.prune(where)


def _other_kernel(library: Any, kernel: str) -> Any:
    """Returns another kernel of the family being compiled, compiling it if needed."""
    return loading.loaded.get(kernel) or loading.load(kernel, library)


def serve(aside: bool) -> None:
    """Runs the process: compiles each requested kernel, at low priority if that is `aside`, and responds.

    A request is a line of JSON, {"kernel": "softmax.softmax", "where": a folder}; a response is {"error": None or a
    message, "tried": whether the same would fail again}. A line READY comes first.
    """
    compiler.serving = True
    if aside and hasattr(os, "nice"):
        os.nice(10)
    warnings.simplefilter("ignore")  # nobody would see them here, and `-W error` is not meant for the compiler
    gc.set_threshold(200_000)  # the compiler makes very many objects that are not garbage
    print(compiler.READY, flush=True)
    for line in sys.stdin:
        tried = True
        try:
            request = json.loads(line)
            compile_into(request["kernel"], Path(request["where"]))
            answer = None
        except Exception as error:
            answer = f"{type(error).__name__}: {error!s:.1000}"
            tried = not isinstance(error, ImportError | SyntaxError | OSError)  # an edited file, a full disk
        print(json.dumps({"error": answer, "tried": tried}), flush=True)
