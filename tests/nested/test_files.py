"""Nested tensors in files: PyTorch's and our own, in both directions; and files that lie."""

import copy
import io
import pickle
import warnings

import numpy as np
import pytest

import tensorgrad
from tests.nested.cases import JAGGED, STRIDED, same, seen

torch = pytest.importorskip("torch")

KINDS = [*((f"jagged: {name}", make) for name, make in JAGGED.items()),
         *((f"strided: {name}", make) for name, make in STRIDED.items())]  # fmt: skip


def leaf(make, library):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x = make(library).detach()
        x.hint = "kept"
        return x.requires_grad_()


@pytest.mark.parametrize("name, make", KINDS, ids=[name for name, _ in KINDS])
@pytest.mark.parametrize("writer, reader", [(torch, tensorgrad), (tensorgrad, torch), (tensorgrad, tensorgrad)])
def test_both_ways(name, make, writer, reader):
    x = leaf(make, writer)
    if name.startswith("strided") and writer is torch:
        del x.hint  # which torch forgets
    file = io.BytesIO()
    writer.save({"x": x}, file)
    file.seek(0)
    found = reader.load(file, weights_only=True)["x"]
    assert same(seen(found), seen(leaf(make, reader)))
    assert getattr(found, "hint", None) == getattr(x, "hint", None) or reader is torch
    assert [p.stride() for p in found.unbind()] == [p.stride() for p in x.unbind()]


@pytest.mark.parametrize("name, make", KINDS, ids=[name for name, _ in KINDS])
def test_pickle_and_deepcopy(name, make):
    x = leaf(make, tensorgrad)
    for made in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x)):
        assert type(made) is type(x) and same(seen(made), seen(x)) and made.hint == "kept"
        assert made.values().data_ptr() != x.values().data_ptr()
    assert same(seen(copy.copy(x)), seen(x))


def written(change):
    """A file of a jagged tensor whose parts are changed before it is written."""
    x = JAGGED["three dimensions"](tensorgrad).detach()
    parts = x._parts()
    change(parts)
    x._parts = lambda: parts
    x._attributes = dict
    file = io.BytesIO()
    tensorgrad.save({"x": x}, file)
    file.seek(0)
    return file


LIES = {
    "beyond the values": {"offsets": tensorgrad.tensor([0, 2, 6, 70])},
    "less than the values": {"offsets": tensorgrad.tensor([0, 2, 3, 5])},
    "negative": {"offsets": tensorgrad.tensor([0, -2, 6, 7])},
    "descending": {"offsets": tensorgrad.tensor([0, 6, 2, 7])},
    "no offsets": {"offsets": tensorgrad.zeros(0, dtype=tensorgrad.int64)},
    "not integers": {"offsets": tensorgrad.zeros(4)},
    "two dimensions": {"offsets": tensorgrad.zeros(4, 1, dtype=tensorgrad.int64)},
    "no tensor": {"offsets": 3},
    "too few lengths": {"lengths": tensorgrad.tensor([1, 1])},
    "long lengths": {"lengths": tensorgrad.tensor([1, 1, 2])},
    "huge lengths": {"lengths": tensorgrad.tensor([2**63 - 1, 2**63 - 1, 1])},
    "no such dimension": {"_ragged_idx": 4},
    "no dimension": {"_ragged_idx": "1"},
    "no values": {"values": None},
}


@pytest.mark.parametrize("name", LIES)
def test_a_file_that_lies_is_refused(name):
    with pytest.raises((ValueError, RuntimeError, pickle.UnpicklingError)):
        tensorgrad.load(written(lambda parts: parts.update(LIES[name])))


def test_what_a_file_says_of_lengths_is_not_believed():
    lie = {"max_seqlen": tensorgrad.zeros(10**6, 0), "min_seqlen": tensorgrad.zeros(0, 0)}
    x = tensorgrad.load(written(lambda parts: parts.update(_metadata_cache=lie)))["x"]
    assert x._max_seqlen == 4 and x.to_padded_tensor(0.0).shape == (3, 4, 3)


def test_attributes_of_a_file_do_not_replace_parts():
    x = JAGGED["three dimensions"](tensorgrad).detach()
    x._attributes = lambda: {"_offsets": tensorgrad.tensor([0, 100]), "values": 3, "hint": 4}
    file = io.BytesIO()
    tensorgrad.save(x, file)
    file.seek(0)
    found = tensorgrad.load(file)
    assert found.hint == 4 and len(found.unbind()) == 3


@pytest.mark.parametrize("part, value", [
    ("_nested_tensor_size", [[2, 3], [4, 3], [9, 3]]), ("_nested_tensor_strides", [[3, 1], [3, 1], [30, 10]]),
    ("_nested_tensor_storage_offsets", [0, 6, 20]), ("_nested_tensor_storage_offsets", [0, 6]),
    ("_nested_tensor_storage_offsets", [-1, 6, 18]), ("_nested_tensor_size", [[2, 3], [4, 3], [2**62, 2**62]]),
])  # fmt: skip
def test_a_strided_file_that_lies_is_refused(part, value):
    x = STRIDED["three dimensions"](tensorgrad).detach()
    x.__dict__[part] = lambda: tensorgrad.tensor(np.array(value))
    x._attributes = dict
    file = io.BytesIO()
    tensorgrad.save({"x": x}, file)
    file.seek(0)
    with pytest.raises((ValueError, RuntimeError, pickle.UnpicklingError)):
        tensorgrad.load(file)
