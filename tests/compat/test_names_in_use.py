"""Names of PyTorch's inside that several packages use, and that have no file of their own here."""

import os

import pytest

import tensorgrad
from tensorgrad.compat import absent_values
from tensorgrad.compat.names_here import PRESENT, found
from tensorgrad.library.operators import has_kernel


def test_quotients_of_symbols():
    theirs = pytest.importorskip("torch.utils._sympy.functions").FloorDiv
    sympy, ours = pytest.importorskip("sympy"), absent_values.FloorDiv
    x, y = sympy.symbols("x y", integer=True, positive=True)
    for base, divisor in (
        (x, 2), (2 * x, 2), (x + 4 * y, 4), (6 * x, 4), (x, 1), (7, 2), (-7, 2), (x * y, y), (x + 1, x + 1), (0, x),
        (x + y, 2), (x - 1, y),
    ):  # fmt: skip
        made, expected = (f(sympy.sympify(base), sympy.sympify(divisor)) for f in (ours, theirs))
        assert str(made) == str(expected)
        assert made.subs({x: 37, y: 5}) == expected.subs({x: 37, y: 5}), (base, divisor)
    assert ours(ours(x, 2), sympy.Integer(3)) == ours(x, sympy.Integer(6))
    with pytest.raises(ZeroDivisionError):
        ours(x, sympy.S.Zero)


def test_folders_of_extensions(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    assert absent_values.build_directory("fast") == os.path.join(tmp_path, "fast") and (tmp_path / "fast").is_dir()
    monkeypatch.delenv("TORCH_EXTENSIONS_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert absent_values.build_directory("other", True).startswith(str(tmp_path / "cache" / "torch_extensions" / "py3"))


def test_kernels_by_dispatch_key():
    torch = pytest.importorskip("torch")
    for name in ("aten::relu", "aten::add.Tensor", "aten::absolute"):
        for key in ("CPU", "Meta", "MPS", "CompositeImplicitAutograd"):
            assert has_kernel(name, key) == torch._C._dispatch_has_kernel_for_dispatch_key(name, key), (name, key)
    with pytest.raises(RuntimeError, match="does not exist"):
        has_kernel("aten::no_such_operator", "CPU")
    with tensorgrad.library._scoped_library("names_in_use", "DEF") as library:
        library.define("f(Tensor x) -> Tensor")
        assert not has_kernel("names_in_use::f", "CPU")
        library.impl("f", lambda x: x, "CPU")
        assert has_kernel("names_in_use::f", tensorgrad._C.DispatchKey.CPU)
        assert not has_kernel("names_in_use::f", "CUDA")


@pytest.mark.parametrize("name", (
    "_C.ScriptMethod", "_C.ScriptObject", "FloatType", "TensorType", "_ops.HigherOrderOperator", "cuda.MemPool",
    "_subclasses.fake_tensor.FakeTensorMode.from_tensor", "_guards.detect_fake_mode", "distributed.rpc.init_rpc",
    "fx.experimental.symbolic_shapes.ShapeEnv", "fx.passes.fake_tensor_prop.FakeTensorProp", "int4", "quint4x2",
    "utils._sympy.functions.FloorDiv", "cuda.memory._snapshot", "fx.traceback.preserve_node_meta",
))  # fmt: skip
def test_they_are_here(name):
    assert found(f"torch.{name}").state == PRESENT
