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
            assert f"{value.__module__}.{value.__qualname__}" == advice
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
