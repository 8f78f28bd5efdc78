"""Checkpoints: to and from torch, sharing, dtypes, places, the old format; hostile files; crashes while saving."""

import collections
import io
import os
import pickle
import signal
import struct
import subprocess
import sys
import textwrap
import time
import zipfile

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tensorgrad as tg
from tensorgrad import serialization
from tensorgrad.serialization import archive, unpickler
from tests.support.compare import array_of, saved

try:
    import torch
except ImportError:
    torch = None

needs_torch = pytest.mark.skipif(torch is None, reason="torch is the oracle of this test")
pytestmark = pytest.mark.filterwarnings("ignore")


def arrays(value) -> list:
    """Returns all tensors in nested values as arrays."""
    if isinstance(value, dict):
        return [a for v in value.values() for a in arrays(v)]
    if isinstance(value, list | tuple):
        return [a for v in value for a in arrays(v)]
    if hasattr(value, "detach"):
        return [array_of(value)]
    return []


def same_bits(a, b) -> bool:
    """Returns whether two nested values have the same tensors, bit for bit."""
    first, second = arrays(a), arrays(b)
    return len(first) == len(second) and all(
        x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes() for x, y in zip(first, second)
    )


# --- to and from torch -----------------------------------------------------------------------------------------------

DTYPES = [
    "bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64",
    "complex128",
]  # fmt: skip


def everything(lib):
    """Values of every kind that a checkpoint may hold."""
    base = lib.arange(24.0)
    return {
        "dtypes": [lib.tensor([0, 1, 1]).to(getattr(lib, name)) for name in DTYPES],
        "views": [base, base[3:7], base.reshape(4, 6).t(), base[::5], base[:0]],
        "scalar": lib.tensor(3.5), "empty": lib.zeros(0, 3), "parameter": lib.nn.Parameter(lib.ones(2, 2)),
        "frozen": lib.nn.Parameter(lib.ones(2), requires_grad=False), "leaf": lib.ones(2, requires_grad=True),
        "plain": [1, -(2**70), 2.5, float("inf"), True, None, "text ü", b"bytes\x00\xff", 3 + 4j, (1, (2, 3)), {1, 2}],
        "ordered": collections.OrderedDict([("b", 1), ("a", lib.zeros(1))]), "counter": collections.Counter("aab"),
        "kinds": [lib.float16, lib.device("cpu"), lib.device("cuda", 1), lib.Size([2, 3])],
        7: "integer key", ("a", 1): "tuple key", "array": bytearray(b"xyz"),
    }  # fmt: skip


@needs_torch
@pytest.mark.parametrize("protocol", [2, 4])
def test_everything_goes_from_torch_to_here_and_back(protocol):
    original = everything(torch)
    here = tg.load(saved(original, torch, pickle_protocol=protocol))
    assert same_bits(here, original)
    assert repr(here["plain"]) == repr(original["plain"]) and here["kinds"][:2] == [tg.float16, tg.device("cpu")]
    assert here["kinds"][3] == tg.Size([2, 3]) and isinstance(here["kinds"][3], tg.Size)
    assert type(here["ordered"]) is collections.OrderedDict and here["counter"] == {"a": 2, "b": 1}
    assert isinstance(here["parameter"], tg.nn.Parameter) and here["parameter"].requires_grad
    assert not here["frozen"].requires_grad and here["leaf"].requires_grad and here["leaf"].is_leaf
    assert here[7] == "integer key" and here["a", 1] == "tuple key" and here["array"] == b"xyz"
    back = torch.load(saved(here))
    assert same_bits(back, original)
    assert repr(back["plain"]) == repr(original["plain"]) and list(back) == list(original)


@needs_torch
def test_tensors_that_share_memory_share_it_afterwards():
    for writer, reader in ((torch, tg), (tg, torch), (tg, tg)):
        base = writer.arange(6.0)
        a, b, c = reader.load(saved([base, base[1:3], base.reshape(2, 3).t()], writer))
        a[1] = 100.0
        assert float(b[0]) == 100.0 and float(c[1, 0]) == 100.0 and c.stride() == (1, 3)
        assert b.storage_offset() == 1


@needs_torch
def test_models_and_optimizers_interchange():
    def make(lib):
        lib.manual_seed(0)
        model = lib.nn.Sequential(
            lib.nn.Conv2d(1, 2, 3, bias=False), lib.nn.BatchNorm2d(2), lib.nn.Flatten(), lib.nn.Linear(8, 3)
        )
        return model, lib.optim.AdamW(model.parameters(), lr=0.1)

    def step(lib, model, optimizer):
        optimizer.zero_grad()
        (model(lib.arange(32.0).sin().reshape(2, 1, 4, 4)) - 1).pow(2).sum().backward()
        optimizer.step()

    for first, second in ((torch, tg), (tg, torch)):
        model, optimizer = make(first)
        step(first, model, optimizer)
        checkpoint = second.load(
            saved({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 1}, first)
        )
        assert checkpoint["model"]._metadata == model.state_dict()._metadata
        other, other_optimizer = make(second)
        other.load_state_dict(checkpoint["model"])
        other_optimizer.load_state_dict(checkpoint["optimizer"])
        assert same_bits(other.state_dict(), model.state_dict())
        step(first, model, optimizer)
        step(second, other, other_optimizer)
        for a, b in zip(arrays(model.state_dict()), arrays(other.state_dict()), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


@needs_torch
def test_the_old_format_can_be_read(tmp_path):
    base = torch.arange(6.0)
    original = {"a": base, "b": base[1:3], "p": torch.nn.Parameter(torch.ones(2)), "h": base.bfloat16(), "n": 3}
    for file in (io.BytesIO(), tmp_path / "old.pt"):
        torch.save(original, file, _use_new_zipfile_serialization=False)
        if isinstance(file, io.BytesIO):
            file.seek(0)
        here = tg.load(file)
        assert same_bits(here, original) and here["n"] == 3
        here["a"][1] = 9.0
        assert float(here["b"][0]) == 9.0


@needs_torch
def test_the_old_format_can_be_written(tmp_path):
    base = tg.arange(6.0)
    original = {"a": base, "b": base[1:3], "p": tg.nn.Parameter(tg.ones(2)), "h": base.bfloat16(), "n": 3}
    for file in (io.BytesIO(), tmp_path / "old.pt"):
        tg.save(original, file, _use_new_zipfile_serialization=False)
        for library in (torch, tg):
            if isinstance(file, io.BytesIO):
                file.seek(0)
            there = library.load(file)
            assert same_bits(original, there) and there["n"] == 3
            there["a"][1] = 9.0
            assert float(there["b"][0]) == 9.0


@needs_torch
def test_the_archive_is_laid_out_as_pytorchs(tmp_path):
    tg.save({"w": tg.ones(1000), "v": tg.zeros(3)}, tmp_path / "model.pt")
    torch.save({"w": torch.ones(1000), "v": torch.zeros(3)}, tmp_path / "theirs.pt")
    names = [sorted(n.partition("/")[2] for n in zipfile.ZipFile(tmp_path / f).namelist())
             for f in ("model.pt", "theirs.pt")]  # fmt: skip
    assert names[0] == names[1]
    reader = archive.Reader(open(tmp_path / "model.pt", "rb"))  # noqa: SIM115
    assert reader.prefix == "model/" and all(reader.start(f"data/{k}") % 64 == 0 for k in (0, 1))
    assert bytes(reader.read("data.pkl")) == zipfile.ZipFile(tmp_path / "theirs.pt").read("theirs/data.pkl")


@needs_torch
def test_mmap(tmp_path):
    for writer in (torch, tg):
        writer.save({"w": writer.arange(1000.0)}, tmp_path / "big.pt")
        before = (tmp_path / "big.pt").read_bytes()
        w = tg.load(tmp_path / "big.pt", mmap=True)["w"]
        assert float(w[7]) == 7.0
        w[7] = 0.0  # a private copy of the page
        assert float(w[7]) == 0.0 and (tmp_path / "big.pt").read_bytes() == before
        assert float(torch.load(tmp_path / "big.pt", mmap=True)["w"][9]) == 9.0
    with pytest.raises(ValueError, match="filename"):
        tg.load(io.BytesIO(), mmap=True)


# --- places ----------------------------------------------------------------------------------------------------------


def test_map_location():
    file = saved([tg.ones(2), tg.zeros(3)])
    for rule in ("cpu", tg.device("cpu"), {"cpu": "cpu"}, lambda storage, location: storage, lambda s, l: None):
        file.seek(0)
        assert tg.load(file, map_location=rule)[0].tolist() == [1.0, 1.0]
    file.seek(0)
    assert tg.load(file, map_location="meta")[0].device.type == "meta"
    assert tg.load(saved(tg.empty(2, 3, device="meta"))).shape == (2, 3)


@needs_torch
@pytest.mark.skipif(tg.cuda.is_available(), reason="there is a GPU to load to")
def test_a_checkpoint_from_a_gpu():
    file = saved(torch.ones(2), torch)
    raw = file.getvalue()
    # the same file as a GPU would have written it: another location, of the same length
    text = zipfile.ZipFile(file).read("archive/data.pkl")
    changed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(raw)) as old, zipfile.ZipFile(changed, "w", zipfile.ZIP_STORED) as new:
        for name in old.namelist():
            content = old.read(name)
            if name.endswith("data.pkl"):
                content = text.replace(b"X\x03\x00\x00\x00cpu", b"X\x06\x00\x00\x00cuda:0")
            new.writestr(name, content)
    changed.seek(0)
    with pytest.raises(RuntimeError, match="map_location"):
        tg.load(changed)
    changed.seek(0)
    assert tg.load(changed, map_location="cpu").tolist() == [1.0, 1.0]
    changed.seek(0)
    assert tg.load(changed, map_location={"cuda:0": "cpu"}).tolist() == [1.0, 1.0]


def test_other_byte_order():
    file = saved([tg.tensor([1.5, 2.5]), tg.tensor([1 + 2j]), tg.tensor([258], dtype=tg.int16)])
    swapped = io.BytesIO()
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(swapped, "w", zipfile.ZIP_STORED) as new:
        for name in old.namelist():
            content = old.read(name)
            if name.endswith("byteorder"):
                content = b"big"
            elif "/data/" in name and not name.endswith("id"):
                size = {"0": 4, "1": 4, "2": 2}[name[-1]]
                content = np.frombuffer(content, f"V{size}").tobytes()
                content = b"".join(content[i : i + size][::-1] for i in range(0, len(content), size))
            new.writestr(name, content)
    swapped.seek(0)
    a, b, c = tg.load(swapped)
    assert a.tolist() == [1.5, 2.5] and b.tolist() == [1 + 2j] and c.tolist() == [258]


# --- whole modules, and trust ----------------------------------------------------------------------------------------


class Mine:
    """A class that no checkpoint may name unless the program says so."""

    def __init__(self, value=0):
        self.value = value


def test_whole_modules_need_trust():
    file = saved(tg.nn.Linear(2, 1))
    with pytest.raises(pickle.UnpicklingError, match="refused"):
        tg.load(file)
    file.seek(0)
    model = tg.load(file, weights_only=False)
    assert isinstance(model, tg.nn.Linear) and model(tg.ones(1, 2)).shape == (1, 1)


@needs_torch
def test_whole_modules_of_pytorch_open_with_trust():
    original = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU(), torch.nn.BatchNorm1d(2)).eval()
    model = tg.load(saved(original, torch), weights_only=False)
    x = torch.randn(4, 3)
    np.testing.assert_allclose(
        model(tg.from_numpy(x.numpy())).detach().numpy(), original(x).detach().numpy(), rtol=1e-5, atol=1e-6
    )


def test_declared_classes_are_allowed():
    file = saved({"mine": Mine(tg.ones(2))})
    with pytest.raises(pickle.UnpicklingError, match="Mine"):
        tg.load(file)
    file.seek(0)
    assert serialization.get_unsafe_globals_in_checkpoint(file) == [f"{__name__}.Mine"]
    file.seek(0)
    with serialization.safe_globals([Mine]):
        assert tg.load(file)["mine"].value.tolist() == [1.0, 1.0]
    assert serialization.get_safe_globals() == []


# --- hostile files ---------------------------------------------------------------------------------------------------

marker: list = []


class Evil:
    """Runs a command when it is unpickled the ordinary way."""

    def __init__(self, function, *args):
        self.function, self.args = function, args

    def __reduce__(self):
        return self.function, self.args


def archive_of(text: bytes, **entries: bytes) -> io.BytesIO:
    """An archive around a pickle."""
    file = io.BytesIO()
    writer = archive.Writer(file, "archive")
    writer.add("data.pkl", text)
    for name, content in {"byteorder": b"little", "version": b"3\n", **entries}.items():
        writer.add(name.replace("_", "/"), content)
    writer.close()
    file.seek(0)
    return file


HOSTILE = {
    "os.system": pickle.dumps(Evil(os.system, "touch executed"), 2),
    "builtins.eval": pickle.dumps(Evil(eval, "marker.append(1)"), 2),
    "builtins.exec": pickle.dumps(Evil(exec, "marker.append(1)"), 4),
    "getattr": pickle.dumps(Evil(getattr, 3, "real"), 2),
    "__import__": pickle.dumps(Evil(__import__, "this"), 2),
    "subprocess": pickle.dumps(Evil(subprocess.call, ["touch", "executed"]), 2),
    "inst": b"(S'touch executed'\nios\nsystem\n.",
    "obj": b"(cos\nsystem\nX\x0e\x00\x00\x00touch executedo.",
    "stack_global": b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x0etouch executed\x85R.",
    "call a value": b"\x80\x02K\x01)R.",
    "call a tensor type": b"\x80\x02ctorch\nFloatStorage\n)R.",
    "call a dtype": b"\x80\x02ctorch\nfloat32\n)R.",
    "build on a function": b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n}X\x01\x00\x00\x00aK\x01sb.",
    "build on a list": b"\x80\x02]}X\x01\x00\x00\x00aK\x01sb.",
    "a bytearray of a length": b"\x80\x02c__builtin__\nbytearray\nJ\xff\xff\xff\x7f\x85R.",
    "an encoding": b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX\x05\x00\x00\x00rot13\x86R.",
    "an extension": b"\x80\x02\x82\x01.",
    "a persistent id": b"\x80\x02X\x03\x00\x00\x00abcQ.",
    "a storage of another kind": b"\x80\x02(X\x06\x00\x00\x00moduleK\x01tQ.",
    "dotted names": b"\x80\x04\x8c\x05torch\x8c\x0e_utils.os.read\x93.",
    "sub modules": b"\x80\x02ctorch.serialization\nos.system\n.",
    "nothing": b"",
    "no end": b"\x80\x02K\x01",
    "two values": b"\x80\x02K\x01K\x02.",
    "an empty stack": b"\x80\x020.",
    "an unknown value": b"\x80\x02h\x05.",
    "a list as a key": b"\x80\x02}]K\x01s.",
    "deep keys": b"\x80\x02}" + b")" + b"\x85" * 50 + b"K\x01s.",
    "a long text": b"\x80\x02X\xff\xff\xff\xffabc.",
    "eight bytes of length": b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x7fabc.",
    "a giant memo": b"\x80\x02K\x01r\xff\xff\xff\xff0h\x00.",
    "unknown protocol": b"\x80\x09K\x01.",
    "many digits": b"I" + b"9" * 5000 + b"\n.",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_pickles_are_refused(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    marker.clear()
    with pytest.raises(pickle.UnpicklingError):
        tg.load(archive_of(HOSTILE[name]))
    with pytest.raises(pickle.UnpicklingError):  # and the same as a file without an archive
        tg.load(io.BytesIO(HOSTILE[name]))
    assert not marker and not (tmp_path / "executed").exists()


def test_what_is_refused_is_named():
    with pytest.raises(pickle.UnpicklingError, match=r"posix\.system|nt\.system"):
        tg.load(archive_of(HOSTILE["os.system"]))


def tensor_pickle(elements, offset, size, stride, key="0", kind="FloatStorage") -> bytes:
    """A pickle of one tensor whose numbers need not be true."""

    class Pickler(pickle._Pickler):
        def persistent_id(self, obj):
            return obj[1:] if isinstance(obj, tuple) and obj[:1] == ("REF",) else None

        def reducer_override(self, obj):
            return obj.name if isinstance(obj, serialization.pickler.Global) else NotImplemented

        def save_global(self, obj, name=None):
            self.write(b"c" + f"{obj.module}\n{obj.name}\n".encode())

    name = serialization.pickler.Global

    class Call:
        def __reduce__(self):
            reference = ("REF", "storage", name("torch", kind), key, "cpu", elements)
            return name("torch._utils", "_rebuild_tensor"), (reference, offset, size, stride)

    file = io.BytesIO()
    Pickler(file, 2).dump(Call())
    return file.getvalue()


LIES = {
    "reaches beyond its storage": (4, 0, (5,), (1,)), "a stride beyond": (4, 0, (2,), (4,)),
    "an offset beyond": (4, 4, (1,), (1,)), "a negative offset": (4, -1, (1,), (1,)),
    "a negative stride": (4, 3, (2,), (-1,)), "a negative size": (4, 0, (-1,), (1,)),
    "sizes without strides": (4, 0, (2, 2), (1,)), "a giant": (4, 0, (2**62, 2**62), (0, 0)),
    "a giant stride": (4, 0, (1,), (2**70,)), "a text as size": (4, 0, ("a",), (1,)), "a float": (4, 0, (1.0,), (1,)),
    "more elements than bytes": (5, 0, (4,), (1,)), "fewer": (3, 0, (3,), (1,)), "no integer": (None, 0, (1,), (1,)),
    "minus one element": (-1, 0, (1,), (1,)), "65 dimensions": (4, 0, (1,) * 65, (1,) * 65),
    "booleans": (4, 0, (True,), (1,)), "an offset of 2**70": (4, 2**70, (0,), (1,)),
}  # fmt: skip


@pytest.mark.parametrize("name", LIES)
def test_tensors_that_point_outside_are_refused(name):
    text = tensor_pickle(*LIES[name])
    if name == "an offset of 2**70":  # an empty tensor: it points at nothing
        assert tg.load(archive_of(text, data_0=b"\x00" * 16)).shape == (0,)
        return
    with pytest.raises(pickle.UnpicklingError):
        tg.load(archive_of(text, data_0=b"\x00" * 16))


def test_missing_and_doubled_entries():
    text = tensor_pickle(4, 0, (4,), (1,))
    assert tg.load(archive_of(text, data_0=b"\x00" * 16)).tolist() == [0.0] * 4
    with pytest.raises(pickle.UnpicklingError, match="no entry"):
        tg.load(archive_of(text))
    with pytest.raises(pickle.UnpicklingError, match="no entry"):
        tg.load(archive_of(tensor_pickle(4, 0, (4,), (1,), key="../version")))
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as doubled:
        doubled.writestr("a/data.pkl", b"N.")
        doubled.writestr("a/data.pkl", b"N.")
    with pytest.raises(pickle.UnpicklingError, match="two entries"):
        tg.load(io.BytesIO(file.getvalue()))
    for name in ("b.txt", "a/b/data.pkl"):
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as other:
            other.writestr(name, b"N.")
        with pytest.raises(pickle.UnpicklingError, match="not a checkpoint"):
            tg.load(io.BytesIO(file.getvalue()))


def test_zip_bombs_are_refused():
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as compressed:
        compressed.writestr("a/data.pkl", b"\x00" * 50_000_000)
    with pytest.raises(pickle.UnpicklingError, match="compressed"):
        tg.load(io.BytesIO(bomb.getvalue()))
    # many entries in the table that share one piece of the file
    raw = bytearray(archive_of(tensor_pickle(4, 0, (4,), (1,)), data_0=b"\x00" * 4096).getvalue())
    end = raw.rfind(b"PK\x05\x06")
    count, length, start = (
        struct.unpack("<H", raw[end + 10 : end + 12])[0],
        *struct.unpack("<II", raw[end + 12 : end + 20]),
    )
    table = bytes(raw[start : start + length])
    entry = table[table.find(b"archive/data/0") - 46 :]
    one = entry[: 46 + sum(struct.unpack("<3H", entry[28:34]))]
    copies = b"".join(one.replace(b"archive/data/0", b"archive/data/" + bytes([65 + i])) for i in range(50))
    tail = bytearray(raw[end:])
    tail[8:12] = struct.pack("<HH", count + 50, count + 50)
    tail[12:20] = struct.pack("<II", length + len(copies), start)
    with pytest.raises(pickle.UnpicklingError, match="longer than the file"):
        tg.load(io.BytesIO(bytes(raw[:start]) + table + copies + bytes(tail)))


@pytest.mark.timeout(120)  # without the bounds, hours
def test_bombs_in_the_pickle_are_refused_quickly():
    shared = b"\x80\x02](" + b"K\x01" * 20_000 + b"eq\x000"  # a list that is then copied into sets again and again
    with pytest.raises(pickle.UnpicklingError, match="copied repeatedly"):
        tg.load(archive_of(shared + b"c__builtin__\nset\nq\x010]q\x02(" + b"h\x01h\x00\x85R" * 3_000 + b"e."))
    doubling = b"\x80\x02]q\x00" + b"0](h\x00h\x00eq\x00" * 500 + b"."  # 2 ** 500 leaves, 500 lists
    assert len(tg.load(archive_of(doubling))) == 2
    deep = b"\x80\x02" + b"]" * 200_000 + b"a" * 199_999 + b"."
    value = tg.load(archive_of(deep))
    assert isinstance(value, list)
    del value
    tuples = tg.load(archive_of(b"\x80\x02)" + b"\x85" * 200_000 + b"."))
    assert isinstance(tuples, tuple)
    del tuples


def test_names_in_a_state_cannot_replace_methods():
    file = archive_of(b"\x80\x02ccollections\nOrderedDict\n)R}X\x01\x00\x00\x00aK\x01sb.")
    assert tg.load(file).a == 1
    original = saved(tg.nn.Parameter(tg.ones(1)))
    parameter = tg.load(original)
    unpickler.set_state(parameter, {"backward": 1, "mine": 2, "__class__": int})
    assert callable(parameter.backward) and parameter.mine == 2 and type(parameter) is tg.nn.Parameter


# --- damaged files ---------------------------------------------------------------------------------------------------

GOOD = saved({"w": tg.arange(50.0), "n": [1, 2, {"a": tg.ones(3, 3).t()}], "s": "text"}).getvalue()
ALLOWED = (pickle.UnpicklingError, RuntimeError, EOFError)


def load_garbled(data: bytes):
    """Loads what may be anything: either an error of the kinds that are promised, or values."""
    try:
        return tg.load(io.BytesIO(data))
    except ALLOWED:
        return None


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, len(GOOD)))
def test_truncated_files(length):
    if length < len(GOOD):
        assert load_garbled(GOOD[:length]) is None


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.integers(0, len(GOOD) - 1), st.integers(0, 255)), min_size=1, max_size=8))
def test_flipped_bytes(changes):
    data = bytearray(GOOD)
    for place, value in changes:
        data[place] = value
    load_garbled(bytes(data))


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.binary(max_size=200))
def test_random_bytes(data):
    load_garbled(data)
    load_garbled(archive_of(data).getvalue())


PIECES = st.sampled_from([
    b"(", b")", b"]", b"}", b"N", b"K\x01", b"K\x00", b"t", b"\x85", b"\x86", b"a", b"e", b"s", b"u", b"q\x00", b"h\x00",
    b"2", b"0", b"1", b"R", b"b", b"Q", b"\x81", b"X\x01\x00\x00\x00a", b"ccollections\nOrderedDict\n", b"\x8f", b"\x90",
    b"c__builtin__\nset\n", b"ctorch\nFloatStorage\n", b"ctorch._utils\n_rebuild_tensor_v2\n", b"ctorch\nSize\n",
    b"ctorch._utils\n_rebuild_parameter\n", b"ctorch\ndevice\n", b"ctorch._tensor\n_rebuild_from_type_v2\n", b"\x91",
    b"X\x07\x00\x00\x00storage", b"X\x03\x00\x00\x00cpu", b"X\x01\x00\x00\x000", b"\x94", b"d", b"l", b"\x88",
    b"ctorch._utils\n_rebuild_meta_tensor_no_storage\n", b"ctorch\nfloat32\n", b"J\xff\xff\xff\x7f", b"os\nsystem\n",
])  # fmt: skip


@settings(max_examples=600, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(PIECES, max_size=40))
def test_random_programs(pieces):
    load_garbled(archive_of(b"\x80\x02" + b"".join(pieces) + b".", data_0=b"\x00" * 16).getvalue())


def test_every_checksum_is_checked():
    place = GOOD.find(np.arange(50.0, dtype=np.float32).tobytes()) + 9
    data = bytearray(GOOD)
    data[place] ^= 1
    with pytest.raises(pickle.UnpicklingError, match="checksum"):
        tg.load(io.BytesIO(bytes(data)))


@needs_torch
def test_damaged_old_files():
    file = io.BytesIO()
    torch.save({"w": torch.arange(50.0)}, file, _use_new_zipfile_serialization=False)
    good = file.getvalue()
    for length in range(0, len(good), 7):
        assert load_garbled(good[:length]) is None
    rng = np.random.default_rng(0)
    for _ in range(300):
        data = bytearray(good)
        for place in rng.integers(0, len(good) - 200, 3):
            data[place] = rng.integers(256)
        load_garbled(bytes(data))


# --- crashes while saving --------------------------------------------------------------------------------------------

# Starts a process that writes whenever it is asked to, and says its number; they share the import of the package.
WRITERS = """
    import os, sys, tensorgrad as torch
    for _ in sys.stdin:
        process = os.fork()
        if process:
            os.waitpid(process, 0)
            continue
        n = 0
        while True:
            if n == 1:
                print(os.getpid(), flush=True)
            n += 1
            torch.save({"n": n, "w": torch.full((200_000,), float(n))}, sys.argv[1])
"""


def runs(process: int) -> bool:
    """Returns whether there is a process of this number, which its parent has not waited for yet."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_killing_the_process_while_it_overwrites_leaves_a_loadable_file(tmp_path):
    path = tmp_path / "checkpoint.pt"
    tg.save({"n": 0, "w": tg.zeros(200_000)}, path)
    rng, seen = np.random.default_rng(0), set()
    command = [sys.executable, "-c", textwrap.dedent(WRITERS), str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writers:
        assert writers.stdin is not None and writers.stdout is not None
        for _ in range(50):
            writers.stdin.write("\n")
            writers.stdin.flush()
            process = int(writers.stdout.readline())
            time.sleep(rng.uniform(0, 0.05))
            os.kill(process, signal.SIGKILL)
            while runs(process):
                time.sleep(0.001)
            checkpoint = tg.load(path)
            assert bool((checkpoint["w"] == checkpoint["n"]).all()) and checkpoint["w"].shape == (200_000,)
            seen.add(checkpoint["n"])
    assert len(seen) > 1  # it did write


def test_an_error_while_saving_keeps_the_old_file(tmp_path):
    path = tmp_path / "checkpoint.pt"
    tg.save([1], path)
    before = path.read_bytes()
    with pytest.raises((pickle.PicklingError, AttributeError, TypeError)):
        tg.save([tg.ones(3), lambda: 0], path)
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["checkpoint.pt"]

    class Full(io.BytesIO):
        def write(self, data):
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        tg.save([1], Full())


def test_replacing_keeps_permissions_and_follows_links(tmp_path):
    path, link = tmp_path / "a.pt", tmp_path / "link.pt"
    tg.save(1, path)
    path.chmod(0o640)
    link.symlink_to(path)
    tg.save(2, link)
    assert link.is_symlink() and tg.load(path) == 2 and path.stat().st_mode & 0o777 == 0o640


def test_tensors_of_two_dtypes_over_one_memory_cannot_be_saved():
    x = tg.zeros(4)
    with pytest.raises(RuntimeError, match="view the same data as different types"):
        tg.save([x, x.view(tg.int32)], io.BytesIO())


def test_arguments():
    with pytest.raises(AttributeError, match="write"):
        tg.save(1, 3)
    with pytest.raises(AttributeError, match="seekable"):
        tg.load(3)
    with pytest.raises(RuntimeError, match="Parent directory"):
        tg.save(1, "/no/such/folder/file.pt")
    with pytest.raises(FileNotFoundError):
        tg.load("/no/such/file.pt")
    with pytest.raises(RuntimeError, match="pickle_module"):
        tg.load(saved(1), pickle_module=pickle, weights_only=True)
    assert tg.load(saved([1]), pickle_module=pickle) == [1]


# --- safetensors -----------------------------------------------------------------------------------------------------


def test_safetensors(tmp_path):
    pytest.importorskip("safetensors", reason="the package safetensors is optional")
    from tensorgrad.serialization import safetensors as ours

    tensors = {name: tg.tensor([[0, 1], [1, 1]]).to(getattr(tg, name)) for name in DTYPES if name != "complex128"}
    tensors |= {"scalar": tg.tensor(2.5), "empty": tg.zeros(0, 3), "view": tg.arange(6.0).reshape(2, 3).t()}
    path = tmp_path / "model.safetensors"
    ours.save_file(tensors, path, {"format": "pt"})
    found = ours.load_file(path)
    assert sorted(found) == sorted(tensors)
    assert all(same_bits(found[k], tensors[k]) and found[k].dtype is tensors[k].dtype for k in tensors)
    found["scalar"].add_(1)  # the memory is the tensor's own
    with pytest.raises(RuntimeError, match="damaged"):
        ours.load(path.read_bytes()[:-3])
    with pytest.raises(TypeError, match="expected a tensor"):
        ours.save({"a": 3})
    if torch is not None:
        import safetensors.torch

        theirs = safetensors.torch.load_file(path)
        assert all(same_bits(theirs[k], found[k]) for k in theirs if k != "scalar")
        safetensors.torch.save_file(theirs, path)
        assert all(same_bits(theirs[k], v) for k, v in ours.load_file(path).items())
