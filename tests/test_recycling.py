"""Memory of large arrays stays with the process, within bounds, and can be given back."""

import os
import subprocess
import sys
import textwrap

import pytest

from tensorgrad.storage import recycling

PROGRAM = """
    import numpy as np
    import tensorgrad as torch
    from tensorgrad.storage import recycling

    def resident():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4096 >> 20

    before = resident()
    x = torch.ones(25_000_000)                      # 100 MB
    assert resident() - before > 80
    del x
    kept = resident() - before > 80
    recycling.release()
    print(kept, resident() - before > 20)
"""


def run(**environment):
    own = {k: v for k, v in os.environ.items() if not k.startswith(("MALLOC_", "GLIBC_", "TENSORGRAD_RECYCLE"))}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM)], capture_output=True, text=True, timeout=120,
        env={**own, **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


needs_glibc = pytest.mark.skipif(
    recycling._glibc() is None or not os.path.exists("/proc/self/statm"), reason="only glibc has these thresholds"
)


@needs_glibc
def test_memory_is_kept_and_given_back():
    if os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") < 2**31:
        pytest.skip("so little memory is not kept on a small machine")
    assert run() == ["True", "False"]


@needs_glibc
@pytest.mark.parametrize("variable", ["TENSORGRAD_RECYCLE=0", "MALLOC_TRIM_THRESHOLD_=131072"])
def test_switched_off(variable):
    name, _, value = variable.partition("=")
    assert run(**{name: value}) == ["False", "False"]


@needs_glibc
def test_more_than_the_bound_is_not_kept(monkeypatch):
    asked = []

    class Library:
        @staticmethod
        def mallopt(what, value):
            asked.append((what, value))
            return what == recycling._TRIM_THRESHOLD or value <= 1 << 25

    monkeypatch.setattr(recycling, "_glibc", Library)
    for name in (*recycling._OTHERS, "TENSORGRAD_RECYCLE"):
        monkeypatch.delenv(name, raising=False)
    assert recycling.start()
    limits = [value for what, value in asked if what == recycling._TRIM_THRESHOLD]
    assert len(limits) == 1 and limits[0] <= recycling.KEPT
    assert asked[1] == (recycling._MMAP_THRESHOLD, 1 << 25)  # what older versions take at most


def test_elsewhere_nothing_happens(monkeypatch):
    monkeypatch.setattr(os, "confstr", lambda name: "musl 1.2", raising=False)
    assert recycling._glibc() is None and recycling.start() is False and recycling.release() is False
    monkeypatch.delattr(os, "confstr")
    assert recycling.start() is False and recycling.release() is False
