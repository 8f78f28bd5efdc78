"""Compiles all kernels now, so that later runs need not wait for them.

    python -m tensorgrad.warmup
    python -m tensorgrad.warmup --into FOLDER --cpu x86-64-v3 --cpu x86-64-v4

They are cached in the user's cache folder (or in TENSORGRAD_CACHE), by versions and processor. With --into they are
written to a folder that an image or a wheel carries (kernels/numba/runtime/carried.py), for levels of processors.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any


def compile_file(compilers: SimpleQueue, kernels: list[str]) -> list[str]:
    """Compiles kernels of one file, which share loops, in a free process. Returns the failures with their reasons."""
    from tensorgrad.kernels.numba.compiling import compile_into
    from tensorgrad.kernels.numba.runtime import cache, loading
    from tensorgrad.kernels.numba.runtime.compiler import Failed, compiles_here

    compiler, failed = compilers.get(), []
    try:
        for kernel in kernels:
            try:
                if loading.in_cache(kernel):
                    continue
                if compiles_here():
                    compile_into(kernel, cache.place())
                else:
                    compiler.compile(kernel, cache.place())
            except Failed as error:
                failed.append(f"{kernel}: {error!s:.300}")
                if error.tried:
                    cache.remember(kernel.rpartition(".")[0], kernel, str(error), error.crash)
    finally:
        compilers.put(compiler)
    return failed


def shown(steps: Iterable[Any], total: int) -> Iterable[Any]:
    """Wraps the steps in a progress bar if tqdm is installed."""
    with contextlib.suppress(ImportError):
        return importlib.import_module("tqdm").tqdm(steps, desc="compiling", unit="file", total=total)
    return steps


def carry(folder: Path, level: str) -> int:
    """Compiles all kernels into a folder to be carried along, for a level of processors ("": for this very one)."""
    place = folder / level
    os.environ |= {"TENSORGRAD_CACHE": str(place), "TENSORGRAD_KERNELS": "", "TENSORGRAD_CPU": level}
    failed = compile_all()
    if not failed:
        from tensorgrad.kernels.numba.runtime import cache, carried, internals

        made = {name: internals.version(name) for name in ("numba", "llvmlite")}
        cache.store(place / carried.VERSIONS, json.dumps(made).encode())
        for lock in place.glob("*.lock"):
            lock.unlink()
    return failed


def main(given: list[str] | None = None) -> int:
    """Compiles with a progress display. Returns 1 if numba is missing, nothing can be cached, or a kernel fails."""
    parser = argparse.ArgumentParser(prog="python -m tensorgrad.warmup", description="Compiles all kernels.")
    parser.add_argument("--into", metavar="FOLDER", type=Path, help="a folder for a wheel or an image to carry")
    parser.add_argument(
        "--cpu", metavar="LEVEL", action="append", help="with --into: a level of processors (x86-64-v3), several times"
    )
    options = parser.parse_args(given)
    if options.into is None:
        if options.cpu:
            parser.error("--cpu needs --into; for the cache, set TENSORGRAD_CPU")
        return compile_all()
    levels = options.cpu or [os.environ.get("TENSORGRAD_CPU", "")]
    if len(levels) == 1:
        return carry(options.into, levels[0])
    from tensorgrad.system.processes import python

    own = ("-m", "tensorgrad.warmup", "--into", str(options.into), "--cpu")
    return max([subprocess.call(python(*own, level)) for level in levels])


def compile_all() -> int:
    """Compiles all kernels that the cache lacks. Returns what `main` does."""
    from tensorgrad.kernels.numba import table
    from tensorgrad.kernels.numba.runtime import cache
    from tensorgrad.kernels.numba.runtime.compiler import Compiler

    if not table.wanted():
        print("nothing to compile: pip install '.[fast]' (numba), and do not set TENSORGRAD_FAST=0", file=sys.stderr)
        return 1
    from tensorgrad.kernels.numba.runtime import native

    if native.unusable():
        print(f"nothing to compile: {native.unusable()}", file=sys.stderr)
        return 1
    if cache.place() != cache.folder():
        print(f"nothing can be cached: {cache.folder()} is not writable (see TENSORGRAD_CACHE)", file=sys.stderr)
        return 1
    families: dict[str, list[str]] = {}
    for row in table.ALL:
        names = families.setdefault(row.kernel.rpartition(".")[0], [])
        if row.kernel not in names:
            names.append(row.kernel)
    folder = Path(table.__file__).parent
    longest_first = sorted(families, key=lambda name: -(folder / f"{name.replace('.', '/')}.py").stat().st_size)
    started = time.perf_counter()
    free: SimpleQueue = SimpleQueue()
    compilers = [Compiler(aside=False) for _ in range(os.cpu_count() or 1)]
    for compiler in compilers:
        free.put(compiler)
    try:
        with ThreadPoolExecutor(len(compilers)) as threads:
            done = threads.map(partial(compile_file, free), (families[name] for name in longest_first))
            failed = [reason for reasons in shown(done, len(families)) for reason in reasons]
    finally:
        for compiler in compilers:
            compiler.close()
    seconds = time.perf_counter() - started
    for reason in failed:
        print(f"not compiled: {reason}", file=sys.stderr)
    ready = sum(map(len, families.values())) - len(failed)
    print(f"{ready} kernels ready after {seconds:.1f} s, in {cache.folder()}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
