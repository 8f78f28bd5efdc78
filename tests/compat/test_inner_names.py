"""Names of PyTorch's inner modules that libraries import, against PyTorch's."""

import importlib
import io
import re
from pathlib import Path

import pytest

import tensorgrad
from tensorgrad import compat
from tensorgrad.compat import absent_values
from tensorgrad.system import absent_names
from tensorgrad.system.absent_names import ABSENT
from tests.support.alike import of_torch
from tests.support.processes import output_of

torch = pytest.importorskip("torch", reason="torch is not installed: nothing to compare with")


GIVEN = {
    "device": lambda l: (("cpu",), {}), "dtype": lambda l: ((l.float64,), {}), "nothing": lambda l: ((), {}),
    "both": lambda l: (("cpu", l.float16), {}), "flag": lambda l: ((l.device("cpu"), l.float32, True), {}),
    "tensor": lambda l: ((l.ones(1),), {}), "named": lambda l: ((), {"device": "cpu", "dtype": l.float16}),
    "format": lambda l: ((), {"memory_format": l.channels_last}), "wrong": lambda l: (([1],), {}),
    "unknown": lambda l: ((), {"device": None, "foo": 1}), "twice": lambda l: (("cpu",), {"device": "cpu"}),
}  # fmt: skip


@pytest.mark.parametrize("name", GIVEN)
def test_parse_to(name):
    def told(library):
        args, kwargs = GIVEN[name](library)
        try:
            return str(library._C._nn._parse_to(*args, **kwargs))
        except TypeError as error:
            return str(error).partition("- got")[0]

    assert told(tensorgrad) == told(torch)


def test_the_file_reader():
    file = io.BytesIO()
    torch.save({"a": torch.arange(4.0), "b": torch.ones(2, dtype=torch.int64)}, file)

    def story(library):
        reader = library.PyTorchFileReader(io.BytesIO(file.getvalue()))
        yield sorted(reader.get_all_records()), reader.serialization_id()
        for name in reader.get_all_records():
            yield name, reader.get_record(name), reader.has_record(name), reader.get_record_offset(name)
        yield reader.has_record("none"), reader.get_storage_from_record("data/0", 4, library.float32).tolist()
        yield reader.get_storage_from_record("data/0", 4, library.float32).untyped_storage().tolist()
        with pytest.raises(RuntimeError, match="none"):
            reader.get_record("none")
        with pytest.raises(RuntimeError):
            library.PyTorchFileReader(io.BytesIO(b"no archive"))

    assert list(story(tensorgrad)) == list(story(torch))


def test_the_file_reader_unpacks_nothing():
    import zipfile

    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", bytes(1 << 24))
    with pytest.raises(RuntimeError, match="compressed"):
        tensorgrad.PyTorchFileReader(file)


@pytest.fixture
def installed():
    compat.install()
    yield
    compat.uninstall()


def found(full):
    """What a program gets for a full name: by import, as far as it goes, and then by attributes."""
    parts = full.split(".")
    for i in range(len(parts), 0, -1):
        try:
            value = importlib.import_module(".".join(parts[:i]))
        except (ModuleNotFoundError, TypeError):  # PyTorch has packages whose path cannot be searched
            continue
        for name in parts[i:]:
            value = getattr(value, name)
        return value
    raise AssertionError(full)


def test_names_that_mean_nothing_here_can_be_imported(installed):
    for full, (kind, libraries, advice) in ABSENT.items():
        value, given = found(full), len
        assert libraries
        if kind == "REFUSES":
            assert not isinstance(3, value) and issubclass(type("Own", (value,), {}), value)
            with pytest.raises(NotImplementedError, match=f"{full} is not included: "):
                value(3)
        elif kind == "VALUE":
            assert value == advice
        elif kind == "FOUND":
            assert value is found(advice)
        elif kind == "MADE":
            assert value is getattr(absent_values, advice)
        else:
            assert value(given) is {"SAME": given, "NO": False, "NOTHING": None}[kind]
            assert full in value.__doc__
    assert tensorgrad.torch is tensorgrad


def test_masks_of_transformers_index_by_numbers_under_vmap(installed):
    """PyTorch needs this mode where the numbers of a batch index a tensor; here they index as they are."""
    import torch as ours

    rows = ours.arange(24.0).reshape(2, 12)
    mode = found("torch._dynamo._trace_wrapped_higher_order_op.TransformGetItemToIndex")
    inner = ours.vmap(lambda i, k: (rows > 3)[i, k] & (k <= 6), in_dims=(None, 0))
    with mode():
        mask = ours.vmap(inner, in_dims=(0, None))(ours.arange(2), ours.arange(12))
    assert mask.tolist() == ((rows > 3) & (ours.arange(12) <= 6)).tolist()


def test_texts_are_indented_as_in_pytorch():
    theirs = importlib.import_module("torch.nn.modules.module")._addindent
    for text in ("", "one", "one\ntwo", "one\n\n  two\n", "\none"):
        assert absent_values.indented(text, 3) == theirs(text, 3)


@pytest.mark.parametrize("differentiable", [False, True])
def test_steps_record_themselves_where_optimizers_are_differentiable(differentiable):
    """As timm's optimizers, whose `step` has this decorator."""

    class Own(tensorgrad.optim.Optimizer):
        @absent_values.with_gradients_if_differentiable
        def step(self, closure=None):
            return tensorgrad.is_grad_enabled(), closure

    optimizer = Own([tensorgrad.nn.Parameter(tensorgrad.ones(2))], {"differentiable": differentiable})
    assert optimizer.step(closure=3) == (differentiable, 3) and tensorgrad.is_grad_enabled()


def test_what_waits_for_a_gpu_never_runs_without_one(monkeypatch):
    called = []
    for there in (False, True):
        monkeypatch.setattr(tensorgrad.cuda, "is_available", lambda there=there: there)
        absent_values.when_cuda_is_used(lambda: called.append(there), seed_all=True)
    assert called == [True]


def test_statements_that_import_inner_names(installed):
    """As fairseq, nerfstudio, composer and NeMo have them: an attribute of the module would not be enough."""
    scope = {}
    exec(
        "from torch.cuda.amp.grad_scaler import GradScaler, OptState\n"
        "from torch.cuda.amp.autocast_mode import autocast\n"
        "from torch._C._distributed_c10d import PrefixStore, ProcessGroup, ReduceOp\n"
        "from torch.jit._recursive import concrete_type_store\n"
        "from functorch.compile import make_boxed_func, memory_efficient_fusion\n"
        "from torch.serialization import default_restore_location\n",
        scope,
    )
    ours = scope["GradScaler"].__module__.partition(".")[0]
    assert ours == "tensorgrad" and scope["OptState"].READY.name == "READY"
    assert scope["ProcessGroup"] is tensorgrad.distributed.ProcessGroup
    assert scope["concrete_type_store"].type_store == {}


@pytest.mark.parametrize("by", ["tensor", "row"])
@pytest.mark.parametrize("out", ["float32", "bfloat16"])
def test_products_of_float8(by, out):
    def product(library):
        a = library.arange(-16.0, 16.0).reshape(2, 16).to(library.float8_e4m3fn)
        b = (library.arange(256.0).reshape(16, 16) / 64 - 2).to(library.float8_e5m2).t()
        scales = library.tensor(0.5), library.tensor(4.0)
        if by == "row":
            scales = library.tensor([[0.5], [2.0]]), library.arange(1.0, 17.0).reshape(1, 16)
        bias = library.arange(16.0).to(getattr(library, out))
        multiply = library._scaled_mm if library is torch else absent_values.scaled_mm
        made = multiply(a, b, scale_a=scales[0], scale_b=scales[1], bias=bias, out_dtype=getattr(library, out))
        return made.float().tolist()

    ours = torch.tensor(product(tensorgrad))
    torch.testing.assert_close(ours, torch.tensor(of_torch(lambda: product(torch))), rtol=2**-7, atol=1e-5)


def test_products_of_float8_refuse_what_they_cannot_multiply():
    a, one = tensorgrad.ones(2, 16).to(tensorgrad.float8_e4m3fn), tensorgrad.ones(1)
    for call, message in {
        lambda: absent_values.scaled_mm(tensorgrad.ones(2, 2), a, one, one): "expected self to be of a float8 dtype",
        lambda: absent_values.scaled_mm(a, a.t(), tensorgrad.ones(2), one): r"the shape \(2, 1\) for the scale of self",
        lambda: absent_values.scaled_mm(a[0], a.t(), one, one): "expected two matrices, got 1 and 2 dimensions",
    }.items():
        with pytest.raises(RuntimeError, match=message):
            call()


@pytest.mark.parametrize("name", ["aten::relu", "aten::add", "aten::clamp", "aten::nonesuch"])
def test_operators_by_their_names(name):
    found, overloads = absent_values.operation(name)
    theirs, names = torch._C._jit_get_operation(name)
    assert (found is None) == (theirs is None)
    if found is not None:
        assert set(overloads) <= set(names)
        values = tensorgrad.tensor([-1.0, 2.0])
        more = () if name == "aten::relu" else (1,)
        assert found(values, *more).tolist() == theirs(torch.tensor([-1.0, 2.0]), *more).tolist()


def test_places_of_files_are_those_of_load():
    """fairseq loads by `map_location=lambda s, l: default_restore_location(s, "cpu")`."""
    file = io.BytesIO()
    torch.save({"a": torch.arange(4.0)}, file)
    for place in ("cpu", "meta"):
        file.seek(0)
        made = tensorgrad.load(file, map_location=lambda s, l, place=place: absent_values.restore_location(s, place))[
            "a"
        ]
        assert made.device.type == place and (place == "meta" or made.tolist() == [0, 1, 2, 3])
    memory = tensorgrad.ones(2).untyped_storage()
    assert absent_values.restore_location(memory, "cpu") is memory
    with pytest.raises(RuntimeError, match="don't know how to restore data location"):
        absent_values.restore_location(memory, "nowhere")


def test_the_function_of_checkpoints():
    def gradient(library):
        x = library.arange(3.0, requires_grad=True)
        checkpoint = importlib.import_module(f"{library.__name__}.utils.checkpoint")
        y = checkpoint.CheckpointFunction.apply(lambda a, n: (a * n).sin(), True, x, 2)
        y.sum().backward()
        return y.grad_fn.name(), y.tolist(), x.grad.tolist()

    (name, *ours), (theirs_name, *theirs) = gradient(tensorgrad), of_torch(lambda: gradient(torch))
    assert name == theirs_name
    for here, there in zip(ours, theirs):
        assert here == pytest.approx(there)


def test_what_is_left_of_functorch_compile():
    from tensorgrad.functorch.compile import memory_efficient_fusion

    layer = tensorgrad.nn.Linear(3, 2)
    x = tensorgrad.ones(4, 3)
    fused = memory_efficient_fusion(layer)
    fused(x).sum().backward()
    assert layer.weight.grad.tolist() == [[4.0] * 3] * 2
    with pytest.raises(NotImplementedError, match="takes no fw_compiler"):
        memory_efficient_fusion(layer, fw_compiler=len)


def test_absent_modules_are_attributes(installed):
    import torch as ours

    assert ours is tensorgrad
    ours._dynamo.config.suppress_errors = True  # as programs do
    assert importlib.import_module("torch._dynamo.config").suppress_errors is True
    ours._dynamo.config.suppress_errors = False
    with pytest.raises(AttributeError, match="no attribute 'no_such_name'"):
        ours._dynamo.no_such_name
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("torch._dynamo.no_such_module")


def test_the_table_is_in_order():
    source = Path(absent_names.__file__).read_text()
    rows = re.findall(r'^    "(torch\.[\w.]+)": \(', source, flags=re.MULTILINE)
    assert rows == sorted(rows) and rows == list(ABSENT), "one name a line, in alphabetical order"


def test_the_table_stands_for_nothing_that_exists():
    """Without the hook, which adds the names."""
    output_of("""
        import importlib
        from tensorgrad.system.absent_names import ABSENT

        for full in ABSENT:
            module, _, name = full.replace("torch", "tensorgrad", 1).rpartition(".")
            try:
                owner = importlib.import_module(module)
            except ModuleNotFoundError:
                continue
            assert not hasattr(owner, name), full
    """)


def test_pytorch_has_all_of_these_names():
    for full in ABSENT:
        found(full)


def test_modules_are_pickled_by_name():
    """In a process of its own: a module that has run is an ordinary one, which `pickle` refuses."""
    output_of("""
        import pickle
        import tensorgrad

        for module in (tensorgrad.optim, vars(tensorgrad)["distributions"]):
            assert pickle.loads(pickle.dumps(module)) is module
    """)
