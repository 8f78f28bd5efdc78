"""Finding NVIDIA's libraries; and what the real cuDNN says of our descriptors, which it makes without a GPU."""

import ctypes
import importlib.util
import random
import shutil
import sys

import pytest

from tensorgrad.kernels.array.conv import conv_points
from tensorgrad.kernels.cuda.runtime import calls, cudnn, cudnn_graph, libraries
from tests.cuda.conftest import MODE

_ctypes = importlib.import_module("_ctypes")


@pytest.fixture
def finder():
    """The module that finds libraries, without the emulator's stand-ins for them."""
    spec = importlib.util.spec_from_file_location("finder", libraries.__file__)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.skipif(MODE != "emulator" or sys.platform != "linux", reason="moves files under Linux's names")
@pytest.mark.parametrize(("name", "folder", "file"), (
    ("cublas", "cu13", "libcublas.so.13"), ("cublas", "cublas", "libcublas.so.13"), ("cudnn", "cudnn", "libcudnn.so.9"),
))  # fmt: skip
def test_wheels_are_looked_through(finder, monkeypatch, tmp_path, name, folder, file):
    """Any loadable file will do here."""
    monkeypatch.setattr(finder, "_by_pathfinder", lambda *_: None)
    place = tmp_path / "nvidia" / folder / "lib"
    place.mkdir(parents=True)
    shutil.copy(_ctypes.__file__, place / file)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert finder.load(name)._name == str(place / file)
    assert finder.present(name)


@pytest.mark.skipif(MODE != "emulator", reason="the library may be there")
@pytest.mark.parametrize(("name", "line"), (
    ("cublas", r"cublas.*13.* was not found: pip install nvidia-cublas \(CUDA 13\), or add"),
    ("cudnn", r"cudnn.*9.* was not found: pip install nvidia-cudnn-cu13 \(CUDA 13\), or add"),
))  # fmt: skip
def test_a_missing_library_is_one_line(finder, monkeypatch, name, line):
    for attempt in ("_by_pathfinder", "_from_wheels", "_from_system"):
        monkeypatch.setattr(finder, attempt, lambda *_: None)
    assert not finder.present(name)
    with pytest.raises(finder.Missing, match=line) as raised:
        finder.load(name)
    assert "\n" not in str(raised.value) and isinstance(raised.value, RuntimeError)


def test_without_cupy_the_line_names_it(finder, monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(finder.Missing, match="pip install cupy-cuda13x"):
        finder.load("cudnn")


def test_descriptors_agree_with_the_real_cudnn(finder, monkeypatch):
    try:
        real = finder.load("cudnn")
    except finder.Missing as missing:
        pytest.skip(str(missing))
    monkeypatch.setattr(libraries, "load", lambda name: real)
    monkeypatch.setattr(cudnn, "LIBRARY", calls.Functions("cudnn", cudnn.SIGNATURES, cudnn_graph.words))
    assert cudnn.version() >= 90000 and cudnn_graph.words(2000) == "CUDNN_STATUS_BAD_PARAM"
    with pytest.raises(RuntimeError, match=r"cudnnSetTensorNdDescriptor of .*\(0, 3, 4, 4\).*BAD_PARAM"):
        cudnn.tensor(0, (0, 3, 4, 4), False)
    ask = real.cudnnGetConvolutionNdForwardOutputDim
    ask.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_int, ctypes.c_void_p]
    numbers = random.Random(5)
    for _ in range(100):
        dims, groups = numbers.choice((1, 2, 3)), numbers.choice((1, 2, 3))
        many = lambda low, high, count=dims: tuple(numbers.randint(low, high) for _ in range(count))
        x, kernel, stride, padding, dilation = many(6, 12), many(1, 3), many(1, 3), many(0, 2), many(1, 2)
        x = (numbers.randint(1, 4), groups * numbers.randint(1, 3), *x)
        w = (groups * numbers.randint(1, 3), x[1] // groups, *kernel)
        y = (x[0], w[0], *conv_points(x[2:], kernel, stride, padding, dilation))
        kind, name = numbers.choice(("forward", "input", "weight")), numbers.choice(tuple(cudnn.TYPES))
        last = dims > 1 and numbers.random() < 0.5
        plan = cudnn.Plan(None, kind, name, x, w, y, last, stride, padding, dilation, groups, True, False, False)
        parts = dict(zip({"forward": "xwy", "input": "wyx", "weight": "xyw"}[kind], plan.descriptors, strict=True))
        found = (ctypes.c_int * max(4, dims + 2))()
        assert not ask(plan.convolution.address, parts["x"].address, parts["w"].address, len(found), found)
        assert tuple(found) == cudnn.lengthened(y, 1, 4)
        del plan, parts
