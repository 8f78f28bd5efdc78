"""What files and copies keep: slots and states of subclasses, strings of Python 2, storages of several types."""

import copy
import gzip
import io
import pickle
import struct

import pytest

from tests.support.alike import alike


def saved(torch, value, old=False) -> io.BytesIO:
    file = io.BytesIO()
    torch.save(value, file, _use_new_zipfile_serialization=not old)
    file.seek(0)
    return file


# --- subclasses ------------------------------------------------------------------------------------------------------


def subclasses(torch):
    """Classes with attributes in a dictionary, in slots, and with a state of their own, as a file could name them."""

    class Plain(torch.Tensor):
        pass

    class Slotted(torch.Tensor):
        __slots__ = ("label", "unset")

    class Deeper(Slotted):
        __slots__ = ("more",)

    class Stateful(torch.Tensor):
        def __getstate__(self):
            return "state", self.label

        def __setstate__(self, state):
            self.label = [*state]

    made = []
    for cls in (Plain, Slotted, Deeper, Stateful):
        cls.__qualname__, cls.__module__ = cls.__name__, __name__
        globals()[cls.__name__] = cls
        x = torch.arange(3.0).as_subclass(cls)
        x.label = ["a"]
        if cls is Deeper:
            x.more = {"b": torch.ones(1)}
        made.append(x)
    return made


def seen(x):
    return type(x).__name__, x, x.label, sorted(x.__dict__), getattr(x, "more", None), hasattr(x, "unset")


def test_deep_copies_keep_slots():
    import tensorgrad as tg  # PyTorch only copies subclasses that have a `new_empty` of their own

    for x in subclasses(tg):
        deep = copy.deepcopy(x)
        assert deep.label == x.label and deep.label is not x.label
        assert deep.tolist() == x.tolist() and type(deep) is type(x) and not hasattr(deep, "unset")
        assert getattr(deep, "more", None) == getattr(x, "more", None)


@alike
def test_pickles_keep_slots_and_states(torch):
    found = []
    for x in subclasses(torch):
        found.append(seen(pickle.loads(pickle.dumps(x))))
        for old in (False, True):
            found.append(seen(torch.load(saved(torch, x, old), weights_only=False)))
    return found


@alike
def test_trusted_classes_get_their_slots_back(torch):
    made = subclasses(torch)
    with torch.serialization.safe_globals([type(x) for x in made]):
        return [seen(torch.load(saved(torch, x), weights_only=True)) for x in made]


def test_a_file_sets_no_slot_of_tensors():
    import tensorgrad as tg
    from tensorgrad.serialization.tables import set_state

    x = set_state(tg.ones(2), ({}, {"_array": None, "_grad": 3, "shape": (1,)}))
    assert x.grad is None and x.shape == (2,)


# --- Python 2 --------------------------------------------------------------------------------------------------------

TENSOR = (
    b"ctorch._utils\n_rebuild_tensor_v2\n((U\x07storagectorch\nFloatStorage\nU\x010U\x03cpuK\x01NtQK\x00K\x01\x85K\x01\x85"
    b"\x89ccollections\nOrderedDict\n)RtR"
)


def of_python_2(text: bytes) -> io.BytesIO:
    """A file in the old format that holds [text, a tensor, 2]; its strings are those of Python 2."""
    system = {"protocol_version": 1001, "little_endian": True}
    heads = (pickle.dumps(value, 2) for value in (0x1950A86A20F9469CFC6C, 1001, system))
    value = b"\x80\x02](U" + bytes([len(text)]) + text + TENSOR + b"K\x02e."
    return io.BytesIO(b"".join(heads) + value + b"\x80\x02](U\x010e." + struct.pack("<qf", 1, 2.5))


@alike
def test_strings_of_python_2_are_decoded_as_asked(torch):
    found = []
    for weights_only in (True, False):
        for options in ({}, {"encoding": "utf-8"}, {"encoding": "bytes"}, {"encoding": "latin1"}):
            for text in (b"abc", "żą".encode()):
                found.append(torch.load(of_python_2(text), weights_only=weights_only, **options))
    return found


@pytest.mark.parametrize("weights_only", [True, False])
def test_a_wrong_encoding_is_an_error(weights_only):
    import tensorgrad as tg

    with pytest.raises((pickle.UnpicklingError, UnicodeDecodeError)):
        tg.load(of_python_2("żą".encode()), weights_only=weights_only, encoding="ascii")


# --- files and storages ----------------------------------------------------------------------------------------------


@alike
def test_empty_storages_may_have_several_types(torch):
    found = []
    for one in (torch.float32, torch.int64, torch.bool):
        for other in (torch.float64, torch.uint8, torch.complex64):
            empty = torch.tensor([], dtype=one)
            same = torch.TypedStorage(wrap_storage=empty.untyped_storage(), dtype=other)
            for old in (False, True):
                x, y = torch.load(saved(torch, [empty, torch.tensor([], dtype=other)], old))
                found.append((x, y))
            x, y = torch.load(saved(torch, [empty, same]))
            found.append((x, y.dtype, len(y)))
    return found


class Traced(io.BytesIO):
    """A file that counts what is read into given memory."""

    into = 0

    def readinto(self, memory):
        self.into += len(memory)
        return super().readinto(memory)


@alike
def test_contents_are_read_into_place(torch):
    file = Traced(saved(torch, torch.arange(1000.0)).read())
    found = torch.load(file)
    assert file.into >= found.nbytes
    return found


@alike
def test_the_old_format_is_flushed(torch):
    raw = io.BytesIO()
    file = io.BufferedWriter(raw, 1 << 20)
    torch.save(torch.arange(5), file, _use_new_zipfile_serialization=False)
    packed = gzip.compress(raw.getvalue())
    return torch.load(gzip.open(io.BytesIO(packed)))
