"""Storages as values: on their own and among others in files, on the meta device, and byte by byte."""

import copy
import io
import mmap
import multiprocessing
import os
import pickle
import sys
import warnings
import zipfile

import numpy as np
import pytest

import tensorgrad as tg
from tests.support.compare import saved

torch = pytest.importorskip("torch", reason="the tests compare with torch")
LIBRARIES = pytest.mark.parametrize("lib", [tg, torch], ids=["tensorgrad", "torch"])
DTYPES = ["uint8", "bool", "int16", "bfloat16", "int32", "float64", "complex64", "complex128"]
CASTS = ["bool", "byte", "char", "short", "int", "long", "half", "bfloat16", "float", "double", "complex_float"]
pytestmark = pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("weights_only", [True, False])
@pytest.mark.parametrize("writer", [tg, torch], ids=["tensorgrad", "torch"])
def test_storages_among_other_values_come_back_as_storages(writer, zipped, weights_only):
    x = writer.arange(6.0)
    value = {"typed": [x.storage()], "part": x[2:], "other": (writer.arange(3).storage(),)}
    found = tg.load(saved(value, writer, _use_new_zipfile_serialization=zipped), weights_only=weights_only)
    typed, (other,) = found["typed"][0], found["other"]
    assert type(typed) is type(other) is tg.TypedStorage
    assert typed.dtype is tg.float32 and typed.tolist() == list(range(6))
    assert other.dtype is tg.int64 and other.tolist() == [0, 1, 2]
    assert found["part"].data_ptr() == typed.data_ptr() + 8
    if writer is tg:
        theirs = torch.load(saved(value, tg, _use_new_zipfile_serialization=zipped), weights_only=weights_only)
        assert type(theirs["typed"][0]) is torch.TypedStorage and theirs["typed"][0].tolist() == list(range(6))


@pytest.mark.parametrize("zipped", [True, False])
def test_untyped_storages_among_other_values(zipped):
    memory = tg.arange(3, dtype=tg.int16).untyped_storage()
    found = tg.load(saved([memory, {"again": memory}], tg, _use_new_zipfile_serialization=zipped))
    assert isinstance(found[0], tg.UntypedStorage) and found[0].tolist() == memory.tolist()
    assert found[1]["again"].data_ptr() == found[0].data_ptr()


@pytest.mark.parametrize("order, swapped", [("BIG", True), ("LITTLE", False), ("NATIVE", sys.byteorder == "big")])
@LIBRARIES
def test_a_file_that_does_not_say_its_byte_order(lib, order, swapped):
    file, plain = saved(lib.tensor([1, 2], dtype=lib.int16), lib), io.BytesIO()
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(plain, "w") as new:
        for name in old.namelist():
            if not name.endswith("byteorder"):
                new.writestr(name, old.read(name))
    serialization = lib.serialization
    assert serialization.get_default_load_endianness() is None
    serialization.set_default_load_endianness(serialization.LoadEndianness[order])
    try:
        plain.seek(0)
        assert lib.load(plain).tolist() == ([256, 512] if swapped else [1, 2])
        assert serialization.get_default_load_endianness() is serialization.LoadEndianness[order]
        file.seek(0)
        assert lib.load(file).tolist() == [1, 2]
    finally:
        serialization.set_default_load_endianness(None)
    with pytest.raises(TypeError, match="Invalid argument type in function set_default_load_endianness"):
        serialization.set_default_load_endianness("big")


@pytest.mark.skipif(not hasattr(mmap, "MAP_PRIVATE"), reason="Windows maps files in another way")
@LIBRARIES
def test_mapped_files_may_be_shared(lib, tmp_path):
    path = tmp_path / "x.pt"
    lib.save(lib.zeros(3), path)
    lib.load(path, mmap=True).fill_(1)
    assert lib.load(path).tolist() == [0, 0, 0]
    with lib.serialization.set_default_mmap_options(mmap.MAP_SHARED):
        assert lib.serialization.get_default_mmap_options() == mmap.MAP_SHARED
        lib.load(path, mmap=True).fill_(1)
    assert lib.serialization.get_default_mmap_options() == mmap.MAP_PRIVATE
    assert lib.load(path, mmap=True).tolist() == [1, 1, 1]
    with pytest.raises(ValueError, match=r"expected mmap\.MAP_PRIVATE or mmap\.MAP_SHARED, but got 77"):
        lib.serialization.set_default_mmap_options(77)


@pytest.mark.parametrize("size", [0, 3, [1, 2]])
@LIBRARIES
def test_storages_on_meta(lib, size):
    typed, untyped = lib.TypedStorage(size, device="meta"), lib.UntypedStorage(size, device="meta")
    count = size if isinstance(size, int) else len(size)
    assert (typed.nbytes(), typed.size(), untyped.nbytes(), untyped.size()) == (4 * count, count, count, count)
    for memory in (typed, untyped):
        assert memory.data_ptr() == 0 and memory.device.type == "meta"
        for read in (lambda m: m[0], *([lambda m: m.tolist()] if count else [])):
            with pytest.raises(NotImplementedError, match="Not available for 'meta' device type"):
                read(memory)
        assert count or memory.tolist() == []
        with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor; no data!"):
            memory.cpu()
        with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor; no data!"):
            saved(memory, lib)
    x = lib.empty(3, device="meta")
    memory = x.untyped_storage()
    assert memory.nbytes() == 12 and memory.data_ptr() == x.data_ptr() == 0
    assert memory.resize_(40).nbytes() == 40 == x.untyped_storage().nbytes()
    assert x[1:].storage_offset() == 1


@pytest.mark.parametrize("dtype", DTYPES)
def test_bytes_of_a_storage_are_turned_round(dtype):
    found = []
    for lib in (tg, torch):
        memory = lib.UntypedStorage(list(range(32)))
        assert memory.byteswap(getattr(lib, dtype)) is None
        found.append(memory.tolist())
    assert found[0] == found[1]


@pytest.mark.parametrize("kind", CASTS)
def test_bytes_as_elements(kind):
    found = [getattr(lib.UntypedStorage([0, 1, 200]), kind)() for lib in (tg, torch)]
    assert found[0].tolist() == found[1].tolist() and str(found[0].dtype) == str(found[1].dtype)


@LIBRARIES
def test_the_warning_of_typed_storages_comes_once(lib):
    before = lib.storage._get_always_warn_typed_storage_removal()
    for always in (False, True):
        lib.storage._reset_warn_typed_storage_removal()
        lib.storage._set_always_warn_typed_storage_removal(always)
        try:
            with warnings.catch_warnings(record=True) as given:
                warnings.simplefilter("always")
                lib.FloatStorage(1)
                lib.TypedStorage(2)
        finally:
            lib.storage._set_always_warn_typed_storage_removal(before)
        assert (len(given) > 1 if always else len(given) == 1) and given[0].filename == __file__


@pytest.mark.parametrize("device", ["cpu", "meta"])
@LIBRARIES
def test_storages_of_every_device_are_of_one_class(lib, device):
    x = lib.ones(3, device=device)
    memory, typed = x.untyped_storage(), x.storage()
    assert type(memory) is lib.UntypedStorage is type(lib.UntypedStorage(3, device=device)) is type(typed.untyped())
    assert type(typed) is lib.storage.TypedStorage and memory.__class__.__name__ == "UntypedStorage"
    assert lib.is_storage(memory) and lib.is_storage(typed) and not lib.is_storage(x)
    assert memory is x.untyped_storage() is x[1:].untyped_storage() is typed.untyped() and memory == typed.untyped()
    assert memory is not x.clone().untyped_storage() and memory.untyped() is memory
    memory.note = "kept as long as it is held"
    assert x.untyped_storage().note == memory.note
    assert type(memory.clone()) is type(copy.copy(memory)) is type(copy.deepcopy(memory)) is lib.UntypedStorage
    assert not memory.is_shared() and not typed.is_shared()


def test_storages_are_pickled_and_copied_with_their_tensors():
    x = tg.arange(4.0)
    memory, again, view = copy.deepcopy([x.untyped_storage(), x, x[1:]])
    assert memory is again.untyped_storage() is view.untyped_storage() and memory is not x.untyped_storage()
    loaded = pickle.loads(pickle.dumps(x.untyped_storage()))
    assert type(loaded) is tg.UntypedStorage and loaded.tolist() == x.untyped_storage().tolist()
    seen = []
    found = tg.load(saved({"x": x}, tg), map_location=lambda memory, place: seen.append(type(memory)) or memory)
    assert seen == [tg.UntypedStorage] and found["x"].tolist() == x.tolist()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="only forked processes share tensors")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "bool"])
@LIBRARIES
def test_forked_processes_share_memory(lib, dtype):
    """The tensor, its views and those of a transposed tensor: the child's writes are seen here, and the other way."""
    x = lib.zeros(3, 2, dtype=getattr(lib, dtype)).t()
    view, storage = x[1:], x.untyped_storage()
    assert x.share_memory_() is x and x.share_memory_() is x
    assert x.is_shared() and view.is_shared() and storage.is_shared() and not x.clone().is_shared()
    assert x.stride() == (1, 2) and view.storage_offset() == 1 and x.dtype is getattr(lib, dtype)
    view[0, 0] = 1
    child = multiprocessing.get_context("fork").Process(target=lambda: view[0, 1:].copy_(x[1, :1]))
    child.start()
    child.join(60)
    assert child.exitcode == 0 and x.tolist() == [[0, 0, 0], [1, 1, 1]] and view.tolist() == [[1, 1, 1]]
    assert pickle.loads(pickle.dumps(x)).tolist() == x.tolist()


@LIBRARIES
def test_sharing_memory_of_modules_and_of_nothing(lib):
    module = lib.nn.Linear(2, 2).share_memory()
    before = module.weight.tolist()
    assert all(p.is_shared() and p.requires_grad and p.is_leaf for p in module.parameters())
    module(lib.ones(1, 2)).sum().backward()
    lib.optim.SGD(module.parameters(), 0.5).step()
    assert module.weight.is_shared() and module.weight.tolist() != before and not module.weight.grad.is_shared()
    assert lib.empty(0).share_memory_().is_shared() and lib.ones(2).untyped_storage().share_memory_().is_shared()


@LIBRARIES
def test_only_memory_of_the_cpu_is_shared(lib, tmp_path):
    x = lib.ones(3, device="meta")
    for memory in (x.untyped_storage(), x.storage()):
        for name, spoken in (("share_memory_", "fd"), ("_share_fd_cpu_", "fd"), ("_share_filename_cpu_", "filename")):
            with pytest.raises(RuntimeError, match=f"_share_{spoken}_: only available on CPU"):
                getattr(memory, name)()
        with (
            open(tmp_path / "x", "wb") as file,
            pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor; no data!"),
        ):
            memory._write_file(file, True, True, 4)
    with pytest.raises(RuntimeError, match="only available on CPU"):
        x.share_memory_()
    assert not x.is_shared() and not lib.ones(1).untyped_storage().is_shared()


@LIBRARIES
def test_a_tensor_over_an_empty_storage_of_the_meta_device(lib):
    storage = lib.storage.TypedStorage(dtype=lib.float32, device="meta")
    tensor = lib._utils._rebuild_tensor(storage, 1, (2, 3), (3, 1))
    assert (tensor.device.type, tensor.shape, tensor.stride(), tensor.storage_offset()) == ("meta", (2, 3), (3, 1), 1)
    assert storage._untyped_storage.nbytes() == tensor.untyped_storage().nbytes() == 28


@LIBRARIES
def test_large_tensors_begin_at_a_cache_line(lib):
    """And are like any other: whole storages, values and strides."""
    values = np.random.default_rng(0).standard_normal((300, 301)).astype(np.float32)
    whole = lib.tensor(values)
    made = {
        "tensor": (whole, values), "of another dtype": (lib.tensor(values, dtype=lib.float64), values),
        "clone": (whole.clone(), values), "rows of a slice": (whole[:, 1:].contiguous(), values[:, 1:]),
        "expanded": (whole[:1].expand(300, 301).contiguous(), values[:1].repeat(300, 0)),
        "empty": (lib.empty(300, 301).copy_(whole), values), "deep copy": (copy.deepcopy(whole), values),
    }  # fmt: skip
    for name, (tensor, expected) in made.items():
        assert tensor.data_ptr() % 64 == 0, name
        assert tensor.is_contiguous() and tensor.storage_offset() == 0, name
        assert tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size(), name
        np.testing.assert_array_equal(tensor.numpy(), expected, name)
    turned = whole.t().clone()
    assert turned.stride() == (1, 301) and lib.equal(turned, whole.t())


class Overriding:
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return "asked"


SET_BY = """
x.set_() | x.set_(t) | x.set_(source=t) | x.set_(s) | x.set_(s, 1, (2,)) | x.set_(t, 1, (2,), (2,))
x.set_(s, 1, [2], None) | x.set_(s, storage_offset=1, size=(2,), stride=(1,)) | x.set_(None)
x.set_(source=None) | x.set_(2) | x.set_([1.0])
x.set_(o) | x.set_(o, 0, (1,)) | x.set_(object()) | x.set_(t, 1) | x.set_(s, 1) | x.set_(t, size=(2,)) | x.set_(s, 0, 2)
x.set_(s, 0, None) | x.set_(s, None, (2,)) | x.set_(s, True, (2,)) | x.set_(s, 1.0, (2,)) | x.set_(s, "a", (2,))
x.set_(None, 0, (2,)) | x.set_(s, 1, (2,), 1) | x.set_(storage_offset=0) | x.set_(stride=(1,)) | x.set_(size=(2,))
"""


@pytest.mark.parametrize("call", [c.strip() for c in SET_BY.replace("\n", " | ").split("|") if c.strip()])
def test_what_a_tensor_is_set_to(call):
    """Classes that override functions are not asked, and what is no source is refused."""
    torch = pytest.importorskip("torch")

    def outcome(lib):
        t = lib.arange(6.0)
        x = lib.ones(2)
        try:
            eval(call, {"x": x, "t": t, "s": t.untyped_storage(), "o": Overriding()})
        except (TypeError, RuntimeError) as error:
            return type(error), x.tolist()
        return x.tolist()

    assert outcome(tg) == outcome(torch)
