"""Names of PyTorch's inner modules that libraries import, against PyTorch's."""

import io

import pytest

import tensorgrad
from tensorgrad import compat
from tensorgrad.compat.absent_names import ABSENT
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


def test_names_that_mean_nothing_here_raise_when_used():
    import importlib

    compat.install()
    try:
        for module, names in ABSENT.items():
            loaded = importlib.import_module(module)
            for name in names:
                assert not isinstance(3, getattr(loaded, name))
                with pytest.raises(NotImplementedError, match=f"{name} is not included: "):
                    getattr(loaded, name)(3)
    finally:
        compat.uninstall()


def test_pytorch_has_all_of_these_names():
    import importlib

    for module, names in ABSENT.items():
        theirs = importlib.import_module(module)
        assert not [name for name in names if not hasattr(theirs, name)], module


def test_modules_are_pickled_by_name():
    """In a process of its own: a module that has run is an ordinary one, which `pickle` refuses."""
    output_of("""
        import pickle
        import tensorgrad

        for module in (tensorgrad.optim, vars(tensorgrad)["distributions"]):
            assert pickle.loads(pickle.dumps(module)) is module
    """)
