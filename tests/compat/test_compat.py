"""PyTorch programs unchanged: `import torch` as tensorgrad, `python -m tensorgrad.run`, and what programs touch."""

import importlib
import operator
import re
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import tensorgrad as tg
from tensorgrad import compat
from tests.support.alike import of_torch
from tests.support.processes import output_of, run_python


def run_program(tmp_path, text: str, *arguments: str, module: bool = False):
    """Runs a program by `python -m tensorgrad.run`."""
    (tmp_path / "program.py").write_text(textwrap.dedent(text))
    named = ["-m", "program"] if module else [str(tmp_path / "program.py")]
    return run_python(None, "-m", "tensorgrad.run", *named, *arguments, cwd=tmp_path)


@pytest.fixture
def installed():
    compat.install()
    yield
    compat.uninstall()


def test_imports_give_one_and_the_same_module(installed):
    import torch
    import torch.nn as nn
    import torch.nn.functional as F
    from torch.autograd import Variable
    from torch.nn.modules.linear import Linear
    from torch.nn.parameter import Parameter
    from torch.optim.lr_scheduler import StepLR
    from torch.utils.data import DataLoader

    assert torch is tg
    assert nn is tg.nn and F is tg.nn.functional
    assert Linear is tg.nn.Linear and Parameter is tg.nn.Parameter
    assert StepLR is tg.optim.lr_scheduler.StepLR and DataLoader is tg.utils.data.DataLoader
    assert Variable is tg.autograd.Variable
    assert tg.nn.__spec__.name == "tensorgrad.nn" and tg.nn.__name__ == "tensorgrad.nn"


def test_importing_a_file_leaves_the_name_that_means_something_else():
    """Python binds the last part of `import torch.a.b` to the module, also where PyTorch has a function there."""
    code = (
        "import tensorgrad.compat, importlib; tensorgrad.compat.install()\n"
        "import torch\n"
        "for name in ('autograd.gradcheck', 'nn.utils.spectral_norm', 'nn.utils.weight_norm'):\n"
        "    holder, _, last = name.rpartition('.')\n"
        "    module = importlib.import_module('torch.' + name)\n"
        "    named = getattr(importlib.import_module('torch.' + holder), last)\n"
        "    assert callable(named) and getattr(module, last) is named, name\n"
        "assert issubclass(importlib.import_module('torch.autograd.gradcheck').GradcheckError, RuntimeError)\n"
    )
    output_of(code)


def test_the_version_is_that_of_the_pytorch_that_is_followed(installed):
    import torch

    assert torch.__version__ == torch.version.__version__ == "2.13.0"
    assert type(torch.__version__) is torch.torch_version.TorchVersion and type(torch.version.__version__) is str
    assert torch.__version__ >= "1.6" and torch.__version__ > (2, 0) and not torch.__version__ < "2.9"
    assert [int(part) for part in torch.__version__.split(".")] == [2, 13, 0]
    assert torch.version.hip is torch.version.rocm is torch.version.xpu is None and torch.version.debug is False
    assert "2.13.0" in torch.__config__.show() and "get_num_threads" in torch.__config__.parallel_info()


def test_the_packages_version_is_this_librarys():
    text = (Path(tg.__file__).parents[1] / "pyproject.toml").read_text()
    pattern = re.search(r"^pattern = '(.*)'", text, re.MULTILINE)[1]
    source = Path(tg.version.__file__).read_text()
    assert re.findall(pattern, source, re.MULTILINE) == [tg.version.tensorgrad]


VERSIONS = [
    "2.13.0", "2.13", "2", "2.13.0+cpu", "2.13.0+cu130", "2.13.0+9", "2.13.0a0", "2.13.0a0+gitabc", "2.13.0.dev1", "v2.13",
    "2.13.0rc2", "2.13.0.c3", "2.13.0-beta", "2.13.0.post1", "2.13.0-1", "2.13.0.post1.dev2", "2.13.0rc1.dev4", "1!1.0", "2.9",
    "2.14", "3", "2.x", "", "parrot", "2.13.0 ", (2, 13), (2, 13, 0), [2, 13], (2, 13, 0, 1), (2, "a"), (), 2, 2.13, None,
]  # fmt: skip


@pytest.mark.parametrize("left", [v for v in VERSIONS if isinstance(v, str)])
def test_versions_compare_as_pytorchs_do(left):
    torch_version = pytest.importorskip("torch.torch_version", reason="torch is not installed: nothing to compare with")

    def outcomes(version, other):
        for compare in (operator.lt, operator.le, operator.eq, operator.ne, operator.ge, operator.gt):
            try:
                yield compare(version, other)
            except TypeError as error:
                yield str(error)

    for right in VERSIONS:
        found = list(outcomes(tg.torch_version.TorchVersion(left), right))
        assert found == list(outcomes(torch_version.TorchVersion(left), right)), (left, right)


def test_uninstall_gives_torch_back():
    before = sys.modules.get("torch")
    compat.install()
    compat.install()
    assert compat.installed() and sys.modules["torch"] is tg
    compat.uninstall()
    assert sys.modules.get("torch") is before and not compat.installed()


def test_a_missing_module_says_so(installed):
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'torch\.zzz'.*coverage"):
        import torch.zzz  # noqa: F401
    with pytest.raises(ImportError, match="zzz"):
        from torch import zzz  # noqa: F401


@pytest.mark.parametrize("module", [False, True])
def test_a_script_runs(tmp_path, module):
    done = run_program(
        tmp_path,
        """
        import sys
        import torch
        from helper import double
        if __name__ == "__main__":
            print(torch.nn.__name__, sys.argv[1:], double(torch.tensor([1.0, 2.0])), __name__)
        """,
        "--epochs", "3", module=module,
    ) if (tmp_path / "helper.py").write_text("import torch\n\ndef double(x):\n    return torch.mul(x, 2)\n") else None  # fmt: skip
    assert done is not None and done.returncode == 0, done.stderr
    assert done.stdout.strip() == "tensorgrad.nn ['--epochs', '3'] tensor([2., 4.]) __main__"


def test_processes_that_a_program_starts_see_tensorgrad_too(tmp_path):
    done = run_program(
        tmp_path,
        """
        import torch
        import torch.multiprocessing as mp

        def work(rank, queue):
            import torch
            queue.put((rank, torch.nn.__name__))

        if __name__ == "__main__":
            queue = mp.get_context("spawn").Queue()
            mp.spawn(work, args=(queue,), nprocs=1)
            print(queue.get())
        """,
    )
    assert done.stdout.strip() == "(0, 'tensorgrad.nn')", done.stderr


def test_errors_are_the_programs_own(tmp_path):
    done = run_program(tmp_path, "import torch\ntorch.nothing_like_this(3)\n")
    assert done.returncode == 1
    assert "nothing_like_this" in done.stderr and "tensorgrad.coverage" in done.stderr
    done = run_program(tmp_path, "import sys\nsys.exit(7)\n")
    assert done.returncode == 7
    done = run_program(tmp_path, "import torch\nraise ValueError('mine')\n")
    assert done.returncode == 1 and "ValueError: mine" in done.stderr and "coverage" not in done.stderr


def test_usage():
    done = run_python(None, "-m", "tensorgrad.run")
    assert done.returncode == 2 and "usage" in done.stderr
    done = run_python(None, "-m", "tensorgrad.run", "no-such.py")
    assert done.returncode == 2 and "no-such.py" in done.stderr


def test_processes_without_the_shim_are_untouched(tmp_path):
    printed = output_of("import tensorgrad, tensorgrad.compat, sys; print('torch' in sys.modules)")
    assert printed.strip() == "False"


def test_safetensors_own_functions_for_torch(tmp_path):
    pytest.importorskip("safetensors", reason="the package safetensors is optional")
    done = run_program(
        tmp_path,
        """
        import torch
        from safetensors.torch import load_file, load_model, save_file, save_model
        save_file({"a": torch.arange(4.0), "b": torch.ones(2, dtype=torch.int16)}, "x.safetensors")
        found = load_file("x.safetensors")
        save_model(torch.nn.Linear(2, 2), "m.safetensors")
        print(found["a"], found["b"].dtype, load_model(torch.nn.Linear(2, 2), "m.safetensors"))
        """,
    )
    assert done.stdout.strip() == "tensor([0., 1., 2., 3.]) torch.int16 (set(), [])", done.stderr


# --- without a GPU ---------------------------------------------------------------------------------------------------

needs_no_gpu = pytest.mark.skipif(tg.cuda.is_available(), reason="there is a GPU: it answers otherwise")


@needs_no_gpu
def test_queries_about_gpus():
    assert tg.cuda.device_count() == 0 and tg.cuda.memory_allocated() == 0 and tg.cuda.get_rng_state_all() == []
    assert not tg.accelerator.is_available() and tg.accelerator.current_accelerator() is None
    assert not tg.backends.cudnn.is_available() and not tg.backends.mps.is_available()
    tg.cuda.manual_seed(3), tg.cuda.manual_seed_all(3), tg.cuda.empty_cache()
    tg.mps.manual_seed(3), tg.xpu.manual_seed(3)


@needs_no_gpu
@pytest.mark.parametrize(
    "call",
    [
        lambda: tg.cuda.current_device(), lambda: tg.cuda.get_device_name(0), lambda: tg.cuda.synchronize(),
        lambda: tg.cuda.FloatTensor(2), lambda: tg.zeros(2).cuda(), lambda: tg.cuda.Stream(), lambda: tg.cuda.Event(),
    ],
)  # fmt: skip
def test_what_needs_a_gpu_says_what_is_missing(call):
    with pytest.raises(RuntimeError, match=r"CuPy|GPU"):
        call()


def test_seeding_a_gpu_that_is_not_there_changes_nothing():
    tg.manual_seed(0)
    expected = tg.rand(3)
    tg.manual_seed(0)
    tg.cuda.manual_seed_all(123)
    if not tg.cuda.is_available():
        assert np.array_equal(tg.rand(3).numpy(), expected.numpy())


# --- names of old ----------------------------------------------------------------------------------------------------


def test_tensor_types():
    x = tg.FloatTensor([[1, 2]])
    assert x.dtype is tg.float32 and isinstance(x, tg.FloatTensor) and not isinstance(x, tg.LongTensor)
    assert not isinstance(x, tg.cuda.FloatTensor) and not isinstance(3, tg.FloatTensor)
    assert tg.LongTensor(2, 3).shape == (2, 3) and tg.FloatTensor(tg.Size([2])).shape == (2,)
    assert tg.FloatTensor().shape == (0,) and tg.DoubleTensor(np.ones(2)).dtype is tg.float64
    assert tg.FloatTensor(x).data_ptr() == x.data_ptr()
    assert x.type(tg.LongTensor).dtype is tg.int64 and x.type() == "torch.FloatTensor"
    with pytest.raises(TypeError):
        tg.LongTensor(2.5)
    with pytest.raises(TypeError):
        tg.LongTensor(x)


def test_tensor_types_in_annotations():
    import typing

    names = [name for name in dir(tg) if name.endswith("Tensor") and name != "Tensor"]
    names += [n for n in ("FloatTensor", "LongTensor", "BoolTensor", "HalfTensor", "BFloat16Tensor") if n not in names]
    for name in names:
        for kind in (getattr(tg, name), getattr(tg.cuda, name, None)):
            if kind is None:
                continue
            assert typing.get_args(kind | None) == (kind, type(None))
            assert typing.get_args(None | kind) == (type(None), kind)
            assert typing.get_args(int | kind | tg.Tensor) == (int, kind, tg.Tensor)
            assert typing.get_args(typing.Optional[kind]) == (kind, type(None))  # noqa: UP045


# Modules that load some of their names when they are first used.
WHOLE = [
    "", "_C", "_ops", "autograd", "autograd.function", "autograd.graph", "autograd.named_nodes", "autograd.profiler", "cuda", "distributed",
    "distributions", "hub", "jit", "nn",
    "nn.compiled", "nn.functional", "nn.modules", "nn.parallel", "nn.parameter", "nn.utils", "optim", "random", "storage", "utils",
    "utils.model_zoo", "version", "viz",
]  # fmt: skip


@pytest.mark.parametrize("name", WHOLE)
def test_a_modules_dictionary_can_be_gone_through(name):
    program = f"""
        import importlib
        import tensorgrad as torch
        module = importlib.import_module("tensorgrad.{name}".rstrip("."))
        names = [n for n in dir(module) if n != "tensorboard"]
        for key, value in module.__dict__.items():
            names and dir(getattr(module, names.pop(), None))
        for key in vars(module):
            names and dir(getattr(module, names.pop(), None))
        assert not names
        missing = set(getattr(module, "__all__", ())) - set(vars(module))
        assert not missing, missing
        if {name!r} == "optim":
            found = [n for n, v in vars(torch.optim).items() if isinstance(v, type) and issubclass(v, torch.optim.Optimizer)]
            assert {{"Adagrad", "LBFGS", "RMSprop"}} <= set(found), found
    """
    output_of(program)


@pytest.mark.parametrize("name", ["", "nn.functional", "autograd", "autograd.graph", "storage"])
def test_a_modules_dictionary_has_all_names_that_it_has(name):
    pytest.importorskip("torch", reason="says which names PyTorch has")
    theirs, ours = (importlib.import_module(f"{lib}.{name}".rstrip(".")) for lib in ("torch", "tensorgrad"))
    there = {n for n in vars(theirs) if not n.startswith("_") and n not in sys.modules and hasattr(ours, n)}
    assert len(there) > 1 and there <= set(vars(ours))


def test_modules_that_load_names_later_are_whole():
    """Every module whose dictionary lacks names that it has is among those above."""
    program = """
        import importlib, pkgutil, types
        import tensorgrad
        plain = types.ModuleType.__dict__["__dict__"]
        inner = ("kernels", "compat.child", "compat.absent_values", "compat.__main__", "run", "storage.", "utils.tensorboard")
        switches = ("backends.cudnn", "_VF")  # which are in PyTorch's dictionary neither
        for name in [m.name.removeprefix("tensorgrad.") for m in pkgutil.walk_packages(tensorgrad.__path__, "tensorgrad.")]:
            if name.startswith(inner + switches) or name.endswith("__main__"):
                continue
            module = importlib.import_module("tensorgrad." + name)
            before = dict(plain.__get__(module))
            if set(dir(module)) - set(before) or "__getattr__" in before:
                print(name)
    """
    assert set(output_of(program).split()) <= set(WHOLE)


def test_default_device_as_a_context():
    with tg.device("meta"):
        assert tg.zeros(2).device.type == "meta"
        with tg.device("cpu"):
            assert tg.zeros(2).device.type == "cpu"
        assert tg.zeros(2).device.type == "meta"
    assert tg.zeros(2).device.type == "cpu"


def test_only_scripted_modules_are_saved():
    model = tg.nn.Linear(2, 1)
    assert hasattr(tg.jit.script(model), "save")
    with pytest.raises(NotImplementedError):
        tg.jit.save(model, "file")
    with pytest.raises(AttributeError, match=r"torch\.jit\.trace.*state_dict"):
        model.save("file")
    assert not hasattr(model, "save")


def test_torchscripts_classes_are_their_own():
    classes = [
        getattr(tg.jit, n) for n in ("ScriptModule", "RecursiveScriptModule", "TracedModule", "TopLevelTracedModule")
    ]
    model = tg.nn.Sequential(tg.nn.Linear(2, 1), tg.nn.ReLU())
    assert isinstance(tg.jit.script(model), tg.jit.RecursiveScriptModule)
    for module in model.modules():
        assert not isinstance(module, tuple(classes))
    assert isinstance(tg.jit.trace(model, tg.ones(1, 2)), tg.jit.TopLevelTracedModule)
    for function in (print, tg.relu, tg.jit.script(lambda x: x)):
        assert not isinstance(function, tg.jit.ScriptFunction)

    class Scaled(tg.jit.ScriptModule):
        def forward(self, x):
            return 2 * x

    assert Scaled()(tg.ones(1)).item() == 2 and Scaled().original_name == "Scaled"
    assert isinstance(Scaled(), tg.jit.ScriptModule) and isinstance(Scaled(), tg.nn.Module)
    assert issubclass(tg.jit.TopLevelTracedModule, tg.jit.TracedModule)
    with pytest.raises(NotImplementedError, match="state_dict"):
        Scaled().save("file")


def test_data_parallel():
    model = tg.nn.DataParallel(tg.nn.Linear(2, 1))
    assert list(model.state_dict()) == ["module.weight", "module.bias"]
    assert model(tg.ones(3, 2)).shape == (3, 1)


def test_pytree():
    from tensorgrad.utils._pytree import tree_flatten, tree_map, tree_unflatten

    tree = {"a": [1, (2, 3)], "b": None}
    leaves, spec = tree_flatten(tree)
    assert leaves == [1, 2, 3, None] and tree_unflatten(leaves, spec) == tree
    assert tree_map(lambda v: v and v * 2, tree) == {"a": [2, (4, 6)], "b": None}
    with pytest.raises(ValueError):
        tree_unflatten([1], spec)


# --- mixed precision -------------------------------------------------------------------------------------------------


# Calls of (the library, its nn.functional, two matrices, and their product inside `autocast`).
AUTOCAST = {
    "mm": lambda lib, F, a, b, c: c, "add": lambda lib, F, a, b, c: a + a, "linear": lambda lib, F, a, b, c: F.linear(a, b.T),
    "softmax": lambda lib, F, a, b, c: a.softmax(1), "after": lambda lib, F, a, b, c: c.softmax(1),
    "plus": lambda lib, F, a, b, c: c + 1.0, "mse": lambda lib, F, a, b, c: F.mse_loss(c, c),
    "ce": lambda lib, F, a, b, c: F.cross_entropy(c, lib.tensor([0, 1, 2])), "ln": lambda lib, F, a, b, c: F.layer_norm(c, (3,)),
    "exp": lambda lib, F, a, b, c: c.exp(), "sum": lambda lib, F, a, b, c: c.sum(),
    "cat": lambda lib, F, a, b, c: lib.cat([c, lib.ones(1, 3)]), "relu": lambda lib, F, a, b, c: c.relu(),
    "stack": lambda lib, F, a, b, c: lib.stack([c, lib.ones(3, 3)]),
    "conv": lambda lib, F, a, b, c: F.conv2d(lib.ones(1, 1, 3, 3), lib.ones(1, 1, 2, 2)),
    "nll": lambda lib, F, a, b, c: F.nll_loss(c, lib.tensor([0, 1, 2])), "prod": lambda lib, F, a, b, c: c.prod(),
    "gelu": lambda lib, F, a, b, c: F.gelu(c), "einsum": lambda lib, F, a, b, c: lib.einsum("ij,jk->ik", a, b),
    "attention": lambda lib, F, a, b, c: F.scaled_dot_product_attention(a[None], a[None], a[None]),
    "double": lambda lib, F, a, b, c: a.double() @ b.double(),
    "bce": lambda lib, F, a, b, c: F.binary_cross_entropy(c.sigmoid(), lib.ones(3, 3)), "bmm": lambda lib, F, a, b, c: a[None].bmm(b[None]),
    "addmm": lambda lib, F, a, b, c: lib.addmm(lib.ones(3), a, b), "l1": lambda lib, F, a, b, c: F.l1_loss(c, c),
    "mean": lambda lib, F, a, b, c: c.mean(), "huber": lambda lib, F, a, b, c: F.huber_loss(c, c),
    "conv1": lambda lib, F, a, b, c: F.conv_transpose1d(lib.ones(1, 1, 3), lib.ones(1, 1, 2)),
    "lstm": lambda lib, F, a, b, c: lib.nn.LSTM(4, 2)(a)[0], "bcel": lambda lib, F, a, b, c: F.binary_cross_entropy_with_logits(c, c),
    "std": lambda lib, F, a, b, c: c.std(), "batch_norm": lambda lib, F, a, b, c: F.batch_norm(c, None, None, training=True),
    "cumsum": lambda lib, F, a, b, c: c.cumsum(0), "mv": lambda lib, F, a, b, c: lib.mv(a, a[0]),
}  # fmt: skip


@pytest.mark.parametrize("name", AUTOCAST)
def test_autocast_casts_what_pytorch_casts(name):
    torch = pytest.importorskip("torch", reason="torch is the oracle of this test")
    pytest.importorskip("ml_dtypes", reason="bfloat16 needs it")

    def found(lib):
        a, b = lib.ones(3, 4), lib.ones(4, 3)
        with lib.autocast("cpu"):
            inside = AUTOCAST[name](lib, lib.nn.functional, a, b, a @ b)
            with lib.autocast("cpu", enabled=False):
                off = a @ b
        return [str(t.dtype) for t in (inside, off, a @ b)]

    assert found(tg) == of_torch(lambda: found(torch))


def test_autocast_leaves_gradients_in_the_parameters_dtype():
    pytest.importorskip("ml_dtypes", reason="bfloat16 needs it")
    model = tg.nn.Linear(4, 2)
    with tg.autocast("cpu"):
        assert tg.is_autocast_enabled("cpu")
        loss = model(tg.ones(3, 4)).float().sum()
    loss.backward()
    assert not tg.is_autocast_enabled("cpu") and model.weight.grad.dtype is tg.float32

    @tg.autocast("cpu", dtype=tg.float16)
    def product(a):
        return a @ a

    assert product(tg.ones(2, 2)).dtype is tg.float16


def test_grad_scaler_skips_overflow_and_adapts():
    w = tg.nn.Parameter(tg.ones(2))
    optimizer = tg.optim.SGD([w], lr=1.0)
    scaler = tg.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
    scales = []
    for factor in (1.0, float("inf"), 1.0, 1.0, 1.0):
        optimizer.zero_grad()
        scaler.scale((w * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    assert scales == [8.0, 4.0, 4.0, 8.0, 8.0] and w.tolist() == [-3.0, -3.0]
    other = tg.amp.GradScaler("cpu")
    other.load_state_dict(scaler.state_dict())
    assert other.state_dict() == scaler.state_dict()
    scaler.scale(w.sum()).backward()
    scaler.unscale_(optimizer)
    with pytest.raises(RuntimeError, match="already been called"):
        scaler.unscale_(optimizer)


# --- testing ---------------------------------------------------------------------------------------------------------

COMPARED = """
l.tensor([1.0, 2.0]), l.tensor([1.0, 2.5]); l.tensor([1.0, 2.0]), l.tensor([1, 2]); 1.0, 2.0; True, False; 1, 2
[l.tensor(1.0)], [l.tensor(2.0)]; l.zeros(2), l.zeros(3); l.tensor([1, 2, 3]), l.tensor([1, 2, 5]); [1], [1, 2]
l.tensor([float('nan')]), l.tensor([float('nan')]); l.tensor([1.0, float('inf')]), l.tensor([2.0, float('inf')])
{'a': l.ones(1)}, {'a': l.zeros(1)}; l.tensor([1 + 1j]), l.tensor([2 + 1j]); l.tensor([True]), l.tensor([False])
l.ones(2, 2, dtype=l.float64), l.zeros(2, 2, dtype=l.float64); None, 1
""".replace("\n", ";").split(";")


@pytest.mark.parametrize("pair", [p.strip() for p in COMPARED if p.strip()])
def test_assert_close_says_what_pytorch_says(pair):
    torch = pytest.importorskip("torch", reason="torch is the oracle of this test")
    messages = []
    for lib in (torch, tg):
        with pytest.raises(AssertionError) as caught:
            lib.testing.assert_close(*eval(f"({pair},)", {"l": lib}))
        messages.append(str(caught.value).replace("0.20000000298023224", "0.2"))
    first = [m.splitlines()[0] for m in messages]
    assert first[0] == first[1]


def test_assert_close_passes():
    tg.testing.assert_close(tg.tensor([1.0]), tg.tensor([1.0 + 1e-7]))
    tg.testing.assert_close({"a": [1, tg.ones(2)]}, {"a": [1, tg.ones(2)]})
    tg.testing.assert_close(tg.tensor([float("nan")]), tg.tensor([float("nan")]), equal_nan=True)
    tg.testing.assert_close(tg.tensor([1.0]), tg.tensor([1.1]), rtol=0.2, atol=0)
    with pytest.raises(ValueError):
        tg.testing.assert_close(1.0, 1.0, rtol=1)
    with pytest.raises(TypeError):
        tg.testing.assert_close("a", "a")
    made = tg.testing.make_tensor((3, 4), dtype=tg.float32, device="cpu", low=-1, high=1, noncontiguous=True)
    assert made.shape == (3, 4) and not made.is_contiguous() and bool((made.abs() <= 1).all())


def test_names_that_libraries_import():
    """Private ones of PyTorch's, which torchmetrics, torchvision, gpytorch and pyro take from where they are."""
    from tensorgrad._C import _get_tracing_state, _log_api_usage_once
    from tensorgrad.distributions.utils import _standard_normal, _sum_rightmost
    from tensorgrad.hub import HASH_REGEX, _get_torch_home
    from tensorgrad.serialization import MAP_LOCATION

    assert _log_api_usage_once("torchmetrics.Metric") is None and _get_tracing_state() is None
    assert _standard_normal((2, 3), tg.float64, None).dtype is tg.float64
    assert _sum_rightmost(tg.ones(2, 3), 1).tolist() == [3, 3]
    assert HASH_REGEX.search("resnet18-5c106cde.pth")[1] == "5c106cde"
    assert tg.hub.get_dir() == str(Path(_get_torch_home()) / "hub")
    assert tg.device in MAP_LOCATION.__args__ and str in MAP_LOCATION.__args__


OPTREE = {
    "__init__.py": """
        from .registry import register_pytree_node
        class MappingEntry: pass
        def leaves(tree):
            if type(tree) is dict:
                return [leaf for name in sorted(tree) for leaf in leaves(tree[name])]
            known = register_pytree_node.get(type(tree))
            return [tree] if known is None else [leaf for child in known[0](tree)[0] for leaf in leaves(child)]
        def built(tree, values):
            flatten, unflatten = register_pytree_node.get(type(tree))
            return unflatten(flatten(tree)[1], values)
    """,
    "registry.py": """
        class Everywhere: pass
        __GLOBAL_NAMESPACE = Everywhere()
        known = {}
        def register_pytree_node(cls, flatten, unflatten, *, path_entry_type, namespace):
            assert namespace is __GLOBAL_NAMESPACE and cls not in known
            known[cls] = flatten, unflatten
        register_pytree_node.get = known.get
    """,
}


@pytest.mark.parametrize("imports", ["import torch, optree", "import optree, torch", "import optree; import torch.nn"])
def test_the_tables_of_modules_are_dicts_to_optree(tmp_path, imports):
    """It looks at the exact type of a container; torchopt changes parameters by it. (The package is a stand-in for it,
    which has what is used of it: `python -m tests.ecosystem --only torchopt` has optree itself.)"""
    (tmp_path / "optree").mkdir()
    for name, text in OPTREE.items():
        (tmp_path / "optree" / name).write_text(textwrap.dedent(text))
    program = f"""
        {imports}
        module = torch.nn.Linear(2, 3)
        assert [tuple(p.shape) for p in optree.leaves({{'inside': module._parameters}})] == [(3,), (3, 2)]
        assert optree.leaves({{'a': module._buffers, 'b': module._modules}}) == []
        copied = optree.built(module._parameters, [torch.zeros(3), torch.ones(3, 2)])
        assert len(optree.leaves(copied)) == 2 and module.bias is module._parameters["bias"]
        module._parameters.update(copied)
        assert module(torch.ones(1, 2)).tolist() == [[2, 2, 2]]
    """
    done = run_program(tmp_path, program)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_module_that_is_handled_when_it_is_loaded_keeps_its_metadata(tmp_path):
    (tmp_path / "optree").mkdir()
    for name, text in OPTREE.items():
        (tmp_path / "optree" / name).write_text(textwrap.dedent(text))
    told = "import torch, optree; print(type(optree.__loader__).__name__, type(optree.__spec__.loader).__name__)"
    assert run_program(tmp_path, told).stdout.split() == ["SourceFileLoader"] * 2
