"""Hostile files and hard conditions: what a file may take, what messages hold, writers that fail or are killed."""

import ast
import collections
import errno
import io
import os
import pickle
import random
import signal
import struct
import subprocess
import sys
import textwrap
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import tensorgrad as tg
from tensorgrad import serialization
from tensorgrad.serialization import archive, unpickler
from tests.fuzz import loading
from tests.fuzz.loading import a_tensor, get, named, remembered, storage, text, tuple_of, wrapped
from tests.support.processes import ROOT, run_python

try:
    import torch
except ImportError:
    torch = None

needs_torch = pytest.mark.skipif(torch is None, reason="torch writes the files of this test")
needs_kill = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system has no SIGKILL")


def file_of(made: bytes, old: bool = False) -> bytes:
    """A file whose value these instructions make."""
    return wrapped(random.Random(0), made, old)


# --- the fuzzer ------------------------------------------------------------------------------------------------------


def test_damaged_and_hostile_files():
    """The same files each time, as a change is judged by what it does; `python -m tests.fuzz.loading` tries others."""
    worker = loading.Worker()
    try:
        for case in range(7, 2007):
            answer = worker(case, slack=20.0)
            assert "wrong" not in answer, f"python -m tests.fuzz.loading --seed {case} --cases 1: {answer['wrong']}"
    finally:
        worker.close()


def test_each_kind_of_file_can_be_made_again():
    kinds = {}
    for seed in range(400):
        kind, data = loading.made(seed)
        assert loading.made(seed) == (kind, data)
        kinds[kind] = kinds.get(kind, 0) + 1
    assert set(kinds) == set(loading.FILES)


@pytest.mark.parametrize("old", [False, True], ids=["zip", "old format"])
@pytest.mark.parametrize("kind", loading.bombs(random.Random(0), 10, 10))
def test_bombs_of_every_kind(kind, old):
    data = file_of(loading.bombs(random.Random(0), 60_000, 1000, old)[kind](), old)
    tracemalloc.start()
    try:
        loading.attempt(kind, data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= loading.memory(len(data)), f"{peak >> 20} MB for a file of {len(data):,} bytes"


# --- messages --------------------------------------------------------------------------------------------------------

TANGLE = b")" + b"2\x86" * 60
EXPANDED = a_tensor((2**40,), (0,))  # which must never be compared with anything
REAL_ARGUMENTS = {
    "torch._utils._rebuild_tensor": [storage(), b"K\x00", tuple_of(b"K\x04"), tuple_of(b"K\x01")],
    "torch._utils._rebuild_tensor_v2": [storage(), b"K\x00", tuple_of(b"K\x04"), tuple_of(b"K\x01"), b"\x89", b"}", b"}"],
    "torch._utils._rebuild_tensor_v3": [
        storage(), b"K\x00", tuple_of(b"K\x04"), tuple_of(b"K\x01"), b"\x89", b"}", named("torch.float32"), b"}",
    ],
    "torch._utils._rebuild_qtensor": [
        storage("QInt8Storage"), b"K\x00", tuple_of(b"K\x04"), tuple_of(b"K\x01"),
        tuple_of(named("torch.per_tensor_affine"), b"G?\xf0\x00\x00\x00\x00\x00\x00", b"K\x00"), b"\x89", b"}",
    ],
    "torch._utils._rebuild_meta_tensor_no_storage": [
        named("torch.float32"), tuple_of(b"K\x04"), tuple_of(b"K\x01"), b"\x89",
    ],
    "torch._utils._rebuild_wrapper_subclass": [
        named("torch.nn.parameter.Parameter"), named("torch.float32"), tuple_of(b"K\x04"), tuple_of(b"K\x01"), b"K\x00",
        b"N", b"N", b"\x89",
    ],
    "torch._utils._rebuild_sparse_tensor": [
        named("torch.serialization._get_layout") + tuple_of(text("torch.sparse_coo")) + b"R",
        tuple_of(a_tensor(), a_tensor(), tuple_of(b"K\x04"), b"\x89"),
    ],
    "torch._utils._rebuild_nested_tensor": [a_tensor(), a_tensor(), a_tensor(), a_tensor()],
    "torch.nested._internal.nested_tensor._rebuild_njt": [
        b"}(" + text("values") + a_tensor() + text("offsets") + a_tensor() + b"u",
    ],
    "torch._dynamo.decorators._DimRange": [],
    "torch._utils._rebuild_parameter": [a_tensor(), b"\x88", b"}"],
    "torch._utils._rebuild_parameter_with_state": [a_tensor(), b"\x88", b"}", b"}"],
    "torch._tensor._rebuild_from_type_v2": [
        named("torch._utils._rebuild_tensor"), named("torch.Tensor"),
        tuple_of(storage(), b"K\x00", tuple_of(b"K\x04"), tuple_of(b"K\x01")), b"}",
    ],
    "torch.serialization._get_layout": [text("torch.strided")],
    "torch.Size": [tuple_of(b"K\x01")], "torch.device": [text("cuda"), b"K\x01"],
    "_codecs.encode": [text("a"), text("latin1")], "builtins.bytearray": [text("a"), text("latin1")],
    "builtins.complex": [b"K\x01", b"K\x02"], "builtins.set": [b"]"], "collections.Counter": [b"}"],
    "collections.OrderedDict": [b"]"], "torch.Tensor": [], "torch.nn.parameter.Parameter": [],
    "torch.nn.parameter.Buffer": [],
}  # fmt: skip


def test_every_function_that_a_file_may_call_is_tried():
    called = {id(unpickler.NAMES[full]) for full in REAL_ARGUMENTS}
    assert set(unpickler.CALLS) <= called


def tangled():
    """Files that give a function, as one of its arguments, values that contain each other: endless when written out."""
    lists = b"]q\xf0" + b"0](h\xf0h\xf0eq\xf0" * 60 + b"2a"
    for full, arguments in REAL_ARGUMENTS.items():
        for position in range(len(arguments) + 1):
            for odd in (TANGLE, lists, b"(" + lists + b"t", b"}" + text("a") + lists + b"s", EXPANDED):
                given = [*arguments[:position], odd, *arguments[position + 1 :]]
                yield f"{full} {position}", named(full) + tuple_of(*given) + b"R"
                yield f"{full} as its arguments", named(full) + odd + b"R"
    for odd in (TANGLE, lists, EXPANDED):
        yield "a storage", odd + b"Q"
        for position in range(5):
            parts = [text("storage"), named("torch.FloatStorage"), text("0"), text("cpu"), b"K\x04"]
            parts[position] = odd
            yield f"a storage's part {position}", tuple_of(*parts) + b"Q"
        yield "a key", b"}" + odd + b"Ns"
        yield "an element", b"\x8f(" + odd + b"\x90"
        yield "a function", odd + b")R"
        yield "a name", odd + odd + b"\x93"
        yield "a state", a_tensor() + odd + b"b"
        yield "what gets a state", odd + b"}b"
        yield "what is appended to", odd + b"}a"


def load_all_tangled() -> None:
    computed = []
    for name in ("__eq__", "__ne__", "__bool__", "__repr__", "__len__", "__iter__", "__hash__"):
        setattr(tg.Tensor, name, lambda *args, name=name, **options: computed.append(name) or NotImplemented)
    for what, made in tangled():
        for old in (False, True):
            loading.attempt("", file_of(made.replace(EXPANDED, a_tensor((2**40,), (0,), old=old)), old))
            assert not computed, f"{what}: {computed}"
    for version in (True, False):  # and where the old format's numbers should be
        data = pickle.dumps(0x1950A86A20F9469CFC6C, 2) if version else b""
        loading.attempt("", data + b"\x80\x02" + TANGLE + b".")


def test_no_message_writes_out_what_a_file_contains():
    program = "from tests.serialization.test_loading import load_all_tangled; load_all_tangled(); print('done')"
    done = run_python(program, cwd=ROOT, timeout=180)  # such a message takes until the process is ended
    assert done.stdout == "done\n", done.stderr


def test_messages_format_values_only_when_they_are_described():
    """No `!r`, and nothing but names of short things, in the messages of what reads files."""
    folder = Path(serialization.__file__).parent
    for name in ("unpickler", "tables", "sparse", "legacy", "archive", "safetensors"):
        for node in ast.walk(ast.parse((folder / f"{name}.py").read_text())):
            if isinstance(node, ast.FormattedValue):
                shown = ast.unparse(node.value)
                writes = name == "safetensors" and "name" in shown  # of tensors that are saved
                assert node.conversion == -1 or shown.startswith("code") or writes, f"{name}.py: {shown}!r"


# --- memory and time -------------------------------------------------------------------------------------------------


def test_what_is_marked_as_negative_is_computed_once_for_each_element_that_is_stored():
    made = a_tensor((2**29,), (0,), b"}" + text("neg") + b"\x88s", elements=4)
    tracemalloc.start()
    found = tg.load(io.BytesIO(file_of(made)))
    assert tracemalloc.get_traced_memory()[1] < 16 << 20
    tracemalloc.stop()
    assert found.shape == (2**29,) and found.stride() == (0,) and float(found[5]) == 0.0
    overlapping = a_tensor((3, 2), (1, 1), b"}" + text("neg") + b"\x88s")
    assert tg.load(io.BytesIO(file_of(overlapping))).stride() == (1, 1)


@needs_torch
@pytest.mark.parametrize("shape", ["plain", "expanded", "sliced", "transposed", "imaginary part", "empty"])
def test_conjugated_and_negated_tensors_of_pytorch(shape):
    base = torch.complex(torch.arange(12.0), -torch.arange(12.0) - 1).reshape(3, 4)
    x = {
        "plain": base.conj(), "expanded": base[0].expand(5, 4).conj(), "sliced": base.conj()[1:, ::2],
        "transposed": base.conj().t(), "imaginary part": base.conj().imag, "empty": base[:0].conj(),
    }[shape]  # fmt: skip
    assert x.is_conj() or x.is_neg()
    file = io.BytesIO()
    torch.save(x, file)
    file.seek(0)
    found = tg.load(file)
    np.testing.assert_array_equal(found.numpy(), x.resolve_conj().resolve_neg().numpy())


# Values of thousands of parts, as programs save them: none may be taken for a bomb. The first are large ones of one
# format, and slow.
HONEST = {
    "50,000 tensors": lambda: {f"layer.{i}.weight": torch.ones(1) for i in range(50_000)},
    "50,000 views": lambda: list(torch.arange(50_000.0).unbind()),
    "a million ordered": lambda: collections.OrderedDict((f"k{i}", i) for i in range(1_000_000)),
    "small tensors": lambda: {f"layer.{i}.weight": torch.ones(1) for i in range(8000)},
    "views": lambda: list(torch.arange(10_000.0).unbind()),
    "views of more dimensions": lambda: list(torch.zeros(8000, 1, 1, 1).unbind()),
    "conjugated views": lambda: list(torch.ones(2000, dtype=torch.complex64).conj().unbind()),
    "parameters": lambda: [torch.nn.Parameter(x) for x in torch.ones(6000).unbind()],
    "meta": lambda: [torch.empty(3, device="meta") for _ in range(10_000)],
    "Adam": lambda: {
        "state": {
            i: {"step": torch.tensor(1.0), "exp_avg": torch.ones(2), "exp_avg_sq": torch.ones(2)} for i in range(3000)
        },
        "param_groups": [{"lr": 0.1, "params": list(range(3000))}],
    },
    "ordered": lambda: collections.OrderedDict((f"k{i}", i) for i in range(60_000)),
    "vocabulary": lambda: {f"word{i}": i for i in range(100_000)},
    "pairs": lambda: {(f"a{i}", f"b{i}"): i for i in range(50_000)},
    "edges": lambda: {(i, -i): float(i) for i in range(50_000)},
    "offsets": lambda: [{(-1, i): 0, (-2, i): 1} for i in range(20_000)],
    "records": lambda: [{"id": i, "tags": ["a", "b"], "at": (i, {"x": float(i)}), "sub": {}} for i in range(30_000)],
    "empty": lambda: [[] for _ in range(150_000)] + [{} for _ in range(150_000)],
    "empty ordered": lambda: [collections.OrderedDict() for _ in range(50_000)],
    "sets": lambda: [{i} for i in range(50_000)],
    "counters": lambda: [collections.Counter("ab") for _ in range(30_000)],
    "numbers": lambda: list(range(300_000)),
    "texts": lambda: [f"s{i}" for i in range(100_000)],
    "sizes": lambda: [torch.Size([i, 2]) for i in range(20_000)],
    "complex": lambda: [complex(i, 1) for i in range(50_000)],
    "bytes": lambda: [b"%d" % i for i in range(50_000)] + [bytearray(b"ab") for _ in range(20_000)],
    "large numbers": lambda: [10**300 + i for i in range(5000)],
}
FORMATS = ({}, {"pickle_protocol": 4}, {"_use_new_zipfile_serialization": False})


@needs_torch
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.slow] * (i < 3)) for i, kind in enumerate(HONEST)]
)
def test_large_honest_files_are_loaded(kind, request):
    value = HONEST[kind]()
    for options in FORMATS[: 1 if request.node.get_closest_marker("slow") else 3]:
        file = io.BytesIO()
        torch.save(value, file, **options)
        file.seek(0)
        found = tg.load(file)
        assert type(found) is type(value) and len(found) == len(value)


def test_keys_that_were_chosen_to_be_slow():
    for kind in range(4):
        keys = loading.slow_keys(2000, kind)
        for made in (b"}(" + b"".join(k + b"N" for k in keys) + b"u", b"\x8f(" + b"".join(keys) + b"\x90"):
            with pytest.raises(pickle.UnpicklingError, match="chosen to be slow"):
                tg.load(io.BytesIO(file_of(made)))
    honest = {
        (-(1 + a), -(1 + b), i): 0 for a in range(2) for b in range(2) for i in range(500)
    }  # hash(-1) is hash(-2)
    file = io.BytesIO()
    tg.save(honest, file)
    file.seek(0)
    assert tg.load(file) == honest


# --- clean errors ----------------------------------------------------------------------------------------------------


def old_format(*parts: object, rest: bytes = b"") -> bytes:
    """The pickles of a file in the old format, some of them given as bytes."""
    return b"".join(p if isinstance(p, bytes) else pickle.dumps(p, 2) for p in parts) + rest


META = (
    b"\x80\x02" + named("torch._utils._rebuild_meta_tensor_no_storage")
    + tuple_of(named("torch.float32"), tuple_of(b"K\x04"), tuple_of(b"K\x01"), b"\x89") + b"R."
)  # fmt: skip
MAGIC, VALUE = serialization.legacy.MAGIC, b"\x80\x02" + a_tensor(old=True) + b"."
UNCLEAN = {
    "keys that are numbers": old_format(MAGIC, 1001, {}, VALUE, [0]),
    "keys that are lists": old_format(MAGIC, 1001, {}, VALUE, [[]]),
    "keys doubled": old_format(MAGIC, 1001, {}, VALUE, ["0", "0"]),
    "a tensor as magic number": META,
    "a tensor as version": old_format(MAGIC, META),
    "facts that are a list": old_format(MAGIC, 1001, [], VALUE, ["0"]),
    "a negative length": old_format(MAGIC, 1001, {}, VALUE, ["0"], rest=b"\xff" * 24),
    "a device's odd digit": file_of(tuple_of(text("storage"), named("torch.FloatStorage"), text("0"), text("cpu:²"), b"K\x04") + b"Q"),
    "a large number as size": file_of(a_tensor((1 << 13_000,), (1 << 13_000,))),
    "a larger number": file_of(b"\x8b" + struct.pack("<I", 1 << 20) + b"\x7f" * (1 << 20)),
    "a function that calls itself": file_of(named("torch._tensor._rebuild_from_type_v2") + b"2" + b"N)}" + b"tR"),
    "nothing": b"",
    "a tar archive": loading.tar(random.Random(3)),
}  # fmt: skip


@pytest.mark.parametrize("name", UNCLEAN)
def test_damage_is_a_clean_error(name):
    with pytest.raises((pickle.UnpicklingError, RuntimeError)):
        tg.load(io.BytesIO(UNCLEAN[name]))


def test_damaged_archives_are_clean_errors():
    good = bytearray(file_of(a_tensor()))
    order = good.find(b"little")
    for at, size, number in ((good.find(b"PK\x01\x02") + 42, 4, 2**31), (good.rfind(b"PK\x05\x06") + 16, 4, 2**31),
                             (good.rfind(b"PK\x05\x06") + 10, 2, 65535), (order, 2, 0xFFFF)):  # fmt: skip
        data = bytearray(good)
        data[at : at + size] = (number % 256**size).to_bytes(size, "little")
        with pytest.raises(pickle.UnpicklingError):
            tg.load(io.BytesIO(bytes(data)))
    file = io.BytesIO()
    writer = archive.Writer(file, "archive")
    writer.add("data.pkl", b"N.")
    writer.add("byteorder", b"\xff\xfe")
    writer.close()
    file.seek(0)
    with pytest.raises(pickle.UnpicklingError, match="byte order"):
        tg.load(file)


def test_something_may_stand_in_front_of_an_archive():
    file = io.BytesIO(b"x" * 100 + file_of(b"K\x05"))
    reader = archive.Reader(file)
    assert bytes(reader.read("data.pkl")) == b"\x80\x02K\x05."


def test_names_are_found_however_a_file_hides_them():
    hidden = (
        text("os")
        + b"q\x000"
        + text("system")
        + b"q\x010"
        + text("torch")
        + text("Size")
        + b"00"
        + get(0)
        + get(1)
        + b"\x93)R"
    )
    file = io.BytesIO(file_of(hidden))
    assert serialization.get_unsafe_globals_in_checkpoint(file) == ["os.system"]
    file = io.BytesIO(file_of(remembered(named("a.B"), 0) + get(0) + b")\x81}b"))
    assert serialization.get_unsafe_globals_in_checkpoint(file) == ["a.B"]


# --- saving ----------------------------------------------------------------------------------------------------------

VALUE_TO_SAVE = {"w": [float(i) for i in range(3000)], "n": 3}


class Raw(io.RawIOBase):
    """A file that takes as many bytes as it likes of each write."""

    def __init__(self, most=None, answer=None):
        self.content, self.most, self.answer = bytearray(), most, answer

    def writable(self):
        return True

    def write(self, data):
        if self.answer is not None:
            return self.answer(len(data))
        taken = bytes(data)[: self.most]
        self.content += taken
        return len(taken)


def tensors():
    return {"w": tg.arange(5000.0), "v": [tg.ones(3), tg.zeros(7)], **VALUE_TO_SAVE}


@pytest.mark.parametrize("options", [{}, {"_use_new_zipfile_serialization": False}], ids=["zip", "old format"])
def test_writes_that_are_cut_short_go_on(options):
    whole, short = io.BytesIO(), Raw(most=1000)
    tg.save(tensors(), whole, **options)
    tg.save(tensors(), short, **options)
    assert bytes(short.content) == whole.getvalue()

    class Silent:  # tells nothing
        def __init__(self):
            self.content = b""

        def write(self, data):
            self.content += bytes(data)

    silent = Silent()
    tg.save(tensors(), silent, **options)
    assert silent.content == whole.getvalue()
    for answer in (lambda n: 0, lambda n: -1, lambda n: n + 1, lambda n: None):
        with pytest.raises(OSError):
            tg.save(tensors(), Raw(answer=answer), **options)


@pytest.mark.parametrize("options", [{}, {"_use_new_zipfile_serialization": False}], ids=["zip", "old format"])
def test_a_file_that_fails_at_any_write_gives_one_error(options, monkeypatch):
    class Failing(Raw):
        def __init__(self, good):
            super().__init__()
            self.good = good

        def write(self, data):
            self.good -= 1
            if self.good < 0:
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().write(data)

    unraisable = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    for good in range(1000):
        try:
            tg.save(tensors(), Failing(good), **options)
        except OSError as error:
            assert error.errno == errno.ENOSPC and error.__context__ is None
        else:
            break
    assert good > 2 and not unraisable


def test_a_full_disk_gives_one_error_and_leaves_the_old_file(tmp_path):
    pytest.importorskip("resource", reason="this system cannot limit the length of files")
    program = """
        import resource, signal, sys, tensorgrad as torch
        torch.save([1], sys.argv[1])
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
        torch.save([torch.ones(1000) for _ in range(50)], sys.argv[1])
    """
    for limit in (1, 1000, 5000, 100_000, 200_000):
        done = run_python(program, tmp_path / "model.pt", limit, cwd=ROOT, timeout=180)
        assert done.returncode == 1 and done.stderr.count("Traceback") == 1 and "Exception ignored" not in done.stderr
        assert done.stderr.splitlines()[-1].startswith("OSError")
        assert os.listdir(tmp_path) == ["model.pt"] and tg.load(tmp_path / "model.pt") == [1]


SAVER = """
    import sys, tensorgrad as torch
    from tensorgrad.serialization.archive import replacing
    with replacing(sys.argv[1]) as file:
        file.write(b"a part")
        file.flush()
        print("writing", flush=True)
        sys.stdin.readline()
"""


@needs_kill
@pytest.mark.skipif(archive.fcntl is None, reason="this system cannot lock files")
def test_what_a_killed_saver_left_is_removed_and_no_living_ones(tmp_path):
    savers = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(SAVER), str(tmp_path / f"{name}.pt")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
        )
        for name in ("killed", "alive")
    ]  # fmt: skip
    for saver in savers:
        assert saver.stdout.readline() == "writing\n"
    assert len(os.listdir(tmp_path)) == 2
    savers[0].kill()
    savers[0].wait()
    tg.save([1], tmp_path / "another.pt")
    left = [name for name in os.listdir(tmp_path) if name.endswith("tensorgrad-tmp")]
    assert len(left) == 1 and left[0].startswith(".alive")
    with archive.replacing(tmp_path / "nested.pt") as file:  # nor one of this process
        tg.save([2], tmp_path / "another.pt")
        file.write(b"whole")
    savers[1].communicate("\n")
    assert sorted(os.listdir(tmp_path)) == ["alive.pt", "another.pt", "nested.pt"]
    assert (tmp_path / "alive.pt").read_bytes() == b"a part" and (tmp_path / "nested.pt").read_bytes() == b"whole"


def test_files_that_may_be_anothers_are_left(tmp_path):
    here = archive._system()
    there = f"{int(here, 16) ^ 1:08x}"
    names = {
        "fresh": f".m.pt.{there}-abcd1234.tensorgrad-tmp", "stale": f".n.pt.{there}-abcd1234.tensorgrad-tmp",
        "other": ".m.pt.abcd1234.tmp", "odd": ".tensorgrad-tmp", "link": f".l.pt.{here}-abcd1234.tensorgrad-tmp",
    }  # fmt: skip
    for kind, name in names.items():
        if kind == "link":
            (tmp_path / "target").write_bytes(b"kept")
            (tmp_path / name).symlink_to(tmp_path / "target")
        else:
            (tmp_path / name).write_bytes(b"x")
    two_days_ago = time.time() - 2 * 24 * 3600
    os.utime(tmp_path / names["stale"], (two_days_ago, two_days_ago))
    os.utime(tmp_path / names["other"], (two_days_ago, two_days_ago))
    tg.save([1], tmp_path / "m.pt")
    expected = {"m.pt", "target", *names.values()} - {names["stale"]}
    assert set(os.listdir(tmp_path)) == expected


@needs_kill
@pytest.mark.parametrize("seed", [3])
def test_the_loop_that_kills_savers(seed):
    from tests.fuzz import loops

    assert loops.killed_saver(seed)["kills"] == 1
