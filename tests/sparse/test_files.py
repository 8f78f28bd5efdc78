"""Sparse tensors in PyTorch's files, both ways; hostile files; copies and pickles."""

import copy
import io
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorgrad as tg
from tensorgrad.serialization.pickler import _Call
from tensorgrad.serialization.tables import named

torch = pytest.importorskip("torch")
from tests.conformance.opdb_bridge import differences, to_tg  # noqa: E402

DENSE = torch.tensor([[0.0, 2, 0, 1], [3, 0, 0, 0]])
MADE = {
    "coo": DENSE.to_sparse(),
    "hybrid": DENSE.to_sparse(1),
    "uncoalesced": torch.sparse_coo_tensor([[1, 0, 1], [2, 2, 2]], [1.0, 2.0, 3.0], (3, 4)),
    "of no dimensions": torch.tensor(3.0).to_sparse(),
    "empty, of huge size": torch.sparse_coo_tensor((2**40, 2**20)),
    "csr": DENSE.to_sparse_csr(),
    "csc": DENSE.to_sparse_csc(),
    "bsr": DENSE.to_sparse_bsr((1, 2)),
    "bsc": DENSE.to_sparse_bsc((2, 2)),
}
every = pytest.mark.parametrize("made", MADE.values(), ids=MADE)
trusting = pytest.mark.parametrize("weights_only", [True, False])
old = pytest.mark.parametrize("zipped", [True, False], ids=["zip", "old format"])


def through_file(save, load, value, zipped, weights_only):
    file = io.BytesIO()
    save({"a": value}, file, _use_new_zipfile_serialization=zipped)
    file.seek(0)
    return load(file, weights_only=weights_only)["a"]


@every
@old
@trusting
def test_files_are_read_by_both_libraries(made, zipped, weights_only):
    given = [made, torch.nn.Parameter(made)]
    plain, parameter = through_file(torch.save, tg.load, given, zipped, weights_only)
    assert not differences(made, plain, "read here")
    assert type(parameter) is tg.nn.Parameter and parameter.requires_grad
    own = [to_tg(made), tg.nn.Parameter(to_tg(made))]
    plain, parameter = through_file(tg.save, torch.load, own, zipped, weights_only)
    assert not differences(plain, own[0], "read by torch")
    assert type(parameter) is torch.nn.Parameter and parameter.requires_grad


@every
def test_copies_and_pickles(made):
    own = to_tg(made)
    own.note = ["kept"]
    for again in (copy.deepcopy(own), pickle.loads(pickle.dumps(own))):
        assert not differences(made, again, "copy") and again.note == ["kept"]
        again.mul_(2)
    assert not differences(made, own, "original")


def test_state_dicts():
    module = tg.nn.Module()
    module.register_buffer("graph", to_tg(MADE["csr"]))
    read = through_file(tg.save, torch.load, module.state_dict(), True, True)
    assert not differences(read["graph"], module.graph, "buffer")


# --- hostile files -------------------------------------------------------------------------------------------------

VALUES = tg.ones(2)
AT = tg.tensor([[0, 1], [1, 0]])
LINES, PLACES = tg.tensor([0, 1, 2]), tg.tensor([1, 0])
HUGE = tg.zeros(1, dtype=tg.int64).expand(2, 2**40)
HOSTILE = {
    "an index beyond the size": ("coo", (AT, VALUES, (2, 1), False)),
    "a negative index": ("coo", (-AT, VALUES, (2, 2), False)),
    "indices that are not integers": ("coo", (AT.double(), VALUES, (2, 2), False)),
    "more indices than values": ("coo", (AT, VALUES[:1], (2, 2), False)),
    "a size of another length": ("coo", (AT, VALUES, (2, 2, 2), False)),
    "a negative size": ("coo", (AT, VALUES, (2, -2), False)),
    "a size that is not an integer": ("coo", (AT, VALUES, (2, 2.5), False)),
    "a size beyond 64 bits": ("coo", (AT, VALUES, (2, 2**70), False)),
    "said to be coalesced": ("coo", (AT.flip(1), VALUES, (2, 2), True)),
    "indices of terabytes": ("coo", (HUGE, tg.ones(1).expand(2**40), (2, 2), False)),
    "values of terabytes": ("coo", (HUGE[:0], tg.ones(1).expand(2**40), (), False)),
    "no tensors": ("coo", ([0], [1.0], (2,), False)),
    "a sparse tensor inside": ("coo", (AT, VALUES.to_sparse(), (2, 2), False)),
    "three parts of CSR": ("csr", (LINES, PLACES, VALUES)),
    "a column beyond the size": ("csr", (LINES, PLACES, VALUES, (2, 1))),
    "a negative column": ("csr", (LINES, -PLACES, VALUES, (2, 2))),
    "lines that do not rise": ("csr", (tg.tensor([0, 3, 2]), PLACES, VALUES, (2, 2))),
    "lines beyond the values": ("csr", (tg.tensor([0, 1, 900]), PLACES, VALUES, (2, 2))),
    "too few lines": ("csr", (LINES, PLACES, VALUES, (2**40, 2))),
    "two kinds of integers": ("csc", (LINES, PLACES.int(), VALUES, (2, 2))),
    "blocks that do not fit": ("bsr", (LINES, PLACES, tg.ones(2, 2, 3), (4, 4))),
    "blocks of no size": ("bsr", (LINES, PLACES, tg.ones(2, 0, 1), (2, 2))),
}


@pytest.mark.parametrize("layout, parts", HOSTILE.values(), ids=HOSTILE)
@old
def test_hostile_files_are_refused(layout, parts, zipped):
    name = _Call(named("torch.serialization", "_get_layout"), (f"torch.sparse_{layout}",))
    file = io.BytesIO()
    tg.save(_Call(named("torch._utils", "_rebuild_sparse_tensor"), (name, parts)), file,
            _use_new_zipfile_serialization=zipped)  # fmt: skip
    file.seek(0)
    with pytest.raises(pickle.UnpicklingError):
        tg.load(file)


def test_indices_share_no_memory_with_other_tensors_of_a_file():
    made = MADE["csr"]
    value = [made.crow_indices(), made.col_indices(), made]
    lines, places, read = through_file(torch.save, tg.load, value, True, True)
    lines.fill_(99)
    places.fill_(99)
    assert not differences(made, read, "after writing to what it was made of")


# --- any file: refused, or read as a tensor whose indices are all inside of it ---------------------------------------

INTEGERS = st.integers(-2, 7) | st.sampled_from([-(2**63), 2**31, 2**63 - 1, 2**40])
KINDS = st.sampled_from([tg.int64, tg.int64, tg.int32, tg.uint8, tg.float32, tg.bool, tg.complex64])


@st.composite
def arrays(draw):
    """A tensor of up to three dimensions with any small numbers, a few large ones, or (expanded) of terabytes."""
    shape = draw(st.lists(st.integers(0, 4), min_size=0, max_size=3))
    kind = draw(KINDS)
    count = int(np.prod(shape))
    numbers = np.array(draw(st.lists(INTEGERS, min_size=count, max_size=count)), np.int64).reshape(shape)
    made = tg.tensor(numbers).to(kind)
    if shape and shape[0] == 1 and draw(st.booleans()):
        return made.expand(draw(st.sampled_from([3, 2**45])), *shape[1:])
    return made


@st.composite
def files(draw):
    """A layout and parts: those of a good tensor, of which some are replaced by anything."""
    kind = draw(st.sampled_from(["coo", "csr", "csc", "bsr", "bsc", "strided", "jagged"]))
    if kind == "coo":
        parts = [tg.tensor([[0, 1, 1], [2, 0, 2]]), tg.tensor([1.0, 2.0, 3.0]), (2, 3), draw(st.booleans())]
    else:
        values = tg.tensor([1.0, 2.0, 3.0]) if kind.startswith("c") else tg.ones(3, 2, 1)
        parts = [tg.tensor([0, 1, 3]), tg.tensor([0, 0, 1]), values, (2, 2) if kind.startswith("c") else (4, 2)]
    for k in draw(st.sets(st.integers(0, 3), min_size=1, max_size=3)):
        sizes = st.lists(INTEGERS, max_size=4).map(tuple)
        parts[k] = draw(arrays() if k < 2 or (k == 2 and kind != "coo") else sizes | st.booleans() | arrays())
    return kind, tuple(parts)


def stored_places(made):
    """The row and column (or all coordinates) of each stored element or block, by the definition of the layout."""
    if made.layout is tg.sparse_coo:
        return [tuple(place) for place in made._indices().t().tolist()], tuple(made.shape)
    by_rows = made.layout in (tg.sparse_csr, tg.sparse_bsr)
    lines, places = (made.crow_indices(), made.col_indices()) if by_rows else (made.ccol_indices(), made.row_indices())
    batch, found = lines.ndim - 1, []
    block = made.values().shape[batch + 1 : batch + 3] if made.layout in (tg.sparse_bsr, tg.sparse_bsc) else (1, 1)
    assert tuple(places.shape) == tuple(made.values().shape[: batch + 1])
    lines, places = lines.reshape(-1, lines.shape[-1]).tolist(), places.reshape(-1, places.shape[-1]).tolist()
    for ends, along in zip(lines, places):
        assert ends[0] == 0 and ends[-1] == len(along) and ends == sorted(ends)
        of_line = [line for line in range(len(ends) - 1) for _ in range(ends[line + 1] - ends[line])]
        found += [(a, b) if by_rows else (b, a) for a, b in zip(of_line, along, strict=True)]
    return found, tuple(n // size for n, size in zip(made.shape[batch : batch + 2], block))


@given(files(), st.booleans(), st.booleans())
@settings(max_examples=150, deadline=None)
def test_files_are_refused_or_whole(parts, zipped, weights_only):
    name = _Call(named("torch.serialization", "_get_layout"), (f"torch.sparse_{parts[0]}",))
    file = io.BytesIO()
    tg.save(_Call(named("torch._utils", "_rebuild_sparse_tensor"), (name, parts[1])), file,
            _use_new_zipfile_serialization=zipped)  # fmt: skip
    file.seek(0)
    try:
        made = tg.load(file, weights_only=weights_only)
    except (pickle.UnpicklingError, RuntimeError, TypeError, ValueError, MemoryError) as error:
        assert str(error)
        assert not weights_only or isinstance(error, pickle.UnpicklingError)
        return
    places, shape = stored_places(made)
    assert all(0 <= n < size for place in places for n, size in zip(place, shape))
    if made.numel() < 1000:
        assert made.to_dense().shape == made.shape
