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


def test_setup_scripts_that_have_nothing_of_pytorchs_to_compile():
    setuptools = pytest.importorskip("setuptools")
    command = absent_values.BuildExtension
    made = setuptools.Distribution({"name": "x", "cmdclass": {"build_ext": command.with_options(use_ninja=False)}})
    built = made.get_command_obj("build_ext")
    built.ensure_finalized()
    built.run()  # nothing
    assert isinstance(built, command) and built.get_ext_filename("a.b").startswith(os.path.join("a", "b."))
    plain = command.with_options(no_python_abi_suffix=True)(setuptools.Distribution())
    plain.ensure_finalized()
    assert plain.get_ext_filename("b").count(".") == 1
    extension = setuptools.Extension("a.b", [], extra_compile_args={"cxx": ["-O2"], "nvcc": ["-O3"]})
    plain.extensions, plain.build_extension, plain.compiler = [extension], lambda extension: None, None
    plain.check_extensions_list = lambda extensions: None
    plain.build_extensions()
    assert extension.extra_compile_args == ["-O2", "-DTORCH_EXTENSION_NAME=b"]


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
    "utils.cpp_extension.BuildExtension.with_options", "_subclasses.fake_tensor.FakeTensorMode.from_tensor", "int4",
    "_guards.detect_fake_mode", "distributed.rpc.init_rpc", "fx.experimental.symbolic_shapes.ShapeEnv", "quint4x2",
    "fx.passes.fake_tensor_prop.FakeTensorProp", "utils._sympy.functions.FloorDiv", "cuda.memory._snapshot",
    "fx.traceback.preserve_node_meta",
))  # fmt: skip
def test_they_are_here(name):
    assert found(f"torch.{name}").state == PRESENT
