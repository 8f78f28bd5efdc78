"""`set_num_threads` reaches the BLAS that NumPy has loaded, whichever it is, without any other package."""

import ctypes
import os
import sys
import threading
import warnings

import pytest

import tensorgrad as torch
from tensorgrad import settings
from tensorgrad.system import blas
from tests.support.processes import environment, output_of

# Asks the library itself, by a way of its own: the list of the files that the system has mapped.
PROGRAM = """
import ctypes, os, re, sys
sys.modules["threadpoolctl"] = None  # importing it fails
import numpy as np
import tensorgrad as torch

def asked():
    with open("/proc/self/maps") as maps:
        files = sorted(set(re.findall(r"(/\\S*(?:openblas|mkl_rt|blis)\\S*)", maps.read())))
    names = [f"{p}openblas_get_num_threads{s}" for p in ("", "scipy_") for s in ("", "64_")]
    names += ["MKL_Get_Max_Threads", "bli_thread_get_num_threads"]
    return [getattr(library, name)() for library in map(ctypes.CDLL, files) for name in names if hasattr(library, name)]

for n in (1, 3, 2):
    torch.set_num_threads(n)
    print(n, torch.get_num_threads(), *asked())
torch.ones(8, 8) @ torch.ones(8, 8)
if not os.fork():
    print("child", torch.get_num_threads(), *asked(), flush=True)
    torch.set_num_threads(1)
    print("then", torch.get_num_threads(), *asked(), flush=True)
    os._exit(0)
os.wait()
try:
    import scipy.linalg
except ImportError:
    sys.exit()
torch.linalg.ldl_factor(torch.eye(3))  # asks SciPy, whose own library then has as many threads
print("scipy", torch.get_num_threads(), *asked())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the files of this process are listed in Linux' way")
def test_the_library_itself_has_the_number_that_was_set():
    lines = [line.split() for line in output_of(PROGRAM, env=environment("OPENBLAS", "OMP", "MKL")).splitlines()]
    if len(lines[0]) == 2:
        pytest.skip("NumPy's BLAS is none of those that this test can ask")
    for _, told, *answers in lines:
        assert answers and set(answers) == {told}, lines
    assert [told for _, told, *_ in lines[:5]] == ["1", "3", "2", "2", "1"]


class Function:
    """A function of a library of ctypes, which stores a number."""

    def __init__(self, kept):
        self.kept, self.restype = kept, None

    def __call__(self, *given):
        self.kept[:] = given or self.kept
        return b"OpenBLAS 0.3.31  DYNAMIC_ARCH MAX_THREADS=64" if self.restype is ctypes.c_char_p else self.kept[0]


class Handle:
    def __init__(self, *names):
        kept = [8]
        for name in names:
            setattr(self, name, Function(kept))


KINDS = [
    *(("OpenBLAS", f"{p}openblas_set_num_threads{s}", f"{p}openblas_get_num_threads{s}")
      for p in ("", "scipy_") for s in ("", "64_", "_64", "64")),
    ("OpenBLAS 0.3.31", "scipy_openblas_set_num_threads64_", "scipy_openblas_get_num_threads64_",
     "scipy_openblas_get_config64_"),
    ("MKL", "MKL_Set_Num_Threads", "MKL_Get_Max_Threads"),
    ("BLIS", "bli_thread_set_num_threads", "bli_thread_get_num_threads"),
    ("FlexiBLAS", "flexiblas_set_num_threads", "flexiblas_get_num_threads"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "names"), [(kind[0], kind[1:]) for kind in KINDS])
def test_each_kind_of_library_is_known_by_its_functions(name, names):
    found = blas.found_in(Handle(*names))
    assert found.name == name and found.threads() == 8
    found.set_threads(3)
    assert found.threads() == 3


def test_accelerate_has_one_thread_or_as_many_as_it_likes():
    handle = Handle("BLASSetThreading", "BLASGetThreading")
    found = blas.found_in(handle)
    found.set_threads(1)
    assert found.name == "Accelerate" and found.threads() == 1
    found.set_threads(2)
    assert handle.BLASGetThreading() == 0 and found.threads() == (os.cpu_count() or 1)


def test_a_library_without_such_functions_is_not_taken():
    assert blas.found_in(Handle()) is None and blas.found_in(Handle("BLASSetThreading")) is None


@pytest.fixture
def restored():
    before = torch.get_num_threads()
    yield
    settings.limit_threads(before)


@pytest.mark.parametrize(
    ("told", "text"),
    [
        ({"name": "accelerate", "found": True}, "macOS 15 .* VECLIB_MAXIMUM_THREADS"),
        ({"name": "blas", "found": True}, r"its BLAS \(blas\) has no function .* OMP_NUM_THREADS"),
        ({"name": "none", "found": False}, None),
    ],
)
def test_one_warning_says_that_no_library_can_be_set(monkeypatch, restored, told, text):
    import numpy

    monkeypatch.setattr(blas, "_of", lambda user: None)
    monkeypatch.setattr(numpy.__config__, "CONFIG", {"Build Dependencies": {"blas": told}}, raising=False)
    monkeypatch.setattr(settings, "_warned", set())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            torch.set_num_threads(2)
    assert torch.get_num_threads() == 2
    assert len(caught) == (text is not None)
    if text is not None:
        with pytest.raises(UserWarning, match=text):
            raise caught[0].message
        assert caught[0].filename == __file__


def test_the_settings_and_the_library_never_differ(restored):
    """Whatever several threads set, the number told afterwards is the one that the library has."""
    library = next(iter(blas.libraries()), None)
    if library is None or library.name == "Accelerate":
        pytest.skip("no BLAS whose number of threads can be set")
    threads = [
        threading.Thread(target=lambda n=n: [torch.set_num_threads(1 + (n + i) % 3) for i in range(50)])
        for n in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert torch.get_num_threads() == library.threads()
