"""Wrong arguments of functions of sparse tensors raise PyTorch's type of error: each value in each argument's place.

A RuntimeError may be one of its subclasses. Calls that PyTorch accepts are not looked at: unchecked indices, mostly.
"""

import warnings

import pytest

import tensorgrad
from tests.support.alike import HAS_TORCH

if not HAS_TORCH:
    pytest.skip("PyTorch is the oracle", allow_module_level=True)

import torch

FLAGS = {"requires_grad": False, "check_invariants": False}


def method(name):
    return lambda x, *args, **named: getattr(x, name)(*args, **named)


def calls(t):
    """Functions, each with right arguments: those by position, by their names, and those by name."""
    dense = t.tensor([[1.0, 0.0, 2.0], [0.0, 3.0, 0.0], [4.0, 0.0, 5.0]])
    coo, csr, sparse = dense.to_sparse(), dense.to_sparse_csr(), t.sparse
    lines, places, values, at = t.tensor([0, 1, 2, 2]), t.tensor([1, 2]), t.ones(2), t.tensor([[0, 1], [1, 2]])
    block, kind, factors = values.reshape(2, 1, 1), {"dtype": t.float32}, {"beta": 1.0, "alpha": 1.0}
    made = {**kind, "device": "cpu", **FLAGS}
    return {
        "mm": (sparse.mm, {"input": coo, "mat2": dense}, {}),
        "mm with reduce": (sparse.mm, {"input": csr, "mat2": dense, "reduce": "sum"}, {}),
        "addmm": (sparse.addmm, {"mat": dense, "mat1": coo, "mat2": dense}, factors),
        "sum": (sparse.sum, {"input": coo}, {"dim": 0, **kind}),
        "softmax": (sparse.softmax, {"input": coo, "dim": 0}, kind),
        "log_softmax": (sparse.log_softmax, {"input": coo, "dim": 0}, kind),
        "sampled_addmm": (sparse.sampled_addmm, {"input": csr, "mat1": dense, "mat2": dense}, factors),
        "spdiags": (sparse.spdiags, {"diagonals": dense, "offsets": t.arange(3), "shape": (3, 3)},
                    {"layout": t.sparse_coo}),
        "coo": (t.sparse_coo_tensor, {"indices": at, "values": values, "size": (3, 3)}, {**made, "is_coalesced": None}),
        "csr": (t.sparse_csr_tensor, {"crow": lines, "col": places, "values": values, "size": (3, 3)}, made),
        "csc": (t.sparse_csc_tensor, {"ccol": lines, "row": places, "values": values, "size": (3, 3)}, made),
        "bsr": (t.sparse_bsr_tensor, {"crow": lines, "col": places, "values": block, "size": (3, 3)}, made),
        "bsc": (t.sparse_bsc_tensor, {"ccol": lines, "row": places, "values": block, "size": (3, 3)}, made),
        "compressed": (t.sparse_compressed_tensor, {"lines": lines, "places": places, "values": values, "size": (3, 3)},
                       {**made, "layout": t.sparse_csr}),
        "hspmm": (t.hspmm, {"mat1": coo, "mat2": dense}, {}),
        "smm": (t.smm, {"input": coo, "mat2": dense}, {}),
        "sspaddmm": (t.sspaddmm, {"input": coo, "mat1": coo, "mat2": dense}, factors),
        "to_dense": (method("to_dense"), {"input": coo}, {"masked_grad": True}),
        "to_sparse": (method("to_sparse"), {"input": dense}, {"layout": t.sparse_coo}),
        "to_sparse of dimensions": (method("to_sparse"), {"input": dense, "sparse_dim": 1}, {}),
        "to_sparse_csr": (method("to_sparse_csr"), {"input": dense}, {"dense_dim": 0}),
        "to_sparse_bsr": (method("to_sparse_bsr"), {"input": dense, "blocksize": (1, 1)}, {"dense_dim": 0}),
        "sparse_mask": (method("sparse_mask"), {"input": dense, "mask": coo}, {}),
        "sparse_resize_": (method("sparse_resize_"), {"input": coo, "size": (4, 4), "sparse_dim": 2, "dense_dim": 0},
                           {}),
    }  # fmt: skip


def wrong(t):
    return {
        "a str": "a", "None": None, "a fraction": 1.5, "a complex": 1j, "an object": object(), "a large int": 2**70,
        "a list of strs": ["a"], "a dtype": t.int32, "a layout": t.sparse_csc, "a vector": t.ones(3),
        "a complex matrix": t.ones(3, 3, dtype=t.complex64),
    }  # fmt: skip


NAMES = list(calls(torch))
# What is taken or told otherwise here.
OTHERWISE = {
    ("indices", "None"): "PyTorch asks for the dtype of None", ("indices", "a dtype"): "likewise",
    ("size", "None"): "stands for a size that is not given",
    ("reduce", "None"): "likewise", ("sparse_dim", "None"): "likewise",
    ("blocksize", "None"): "likewise", ("input", "a vector"): "another check comes first",
}  # fmt: skip
OF_ARRAYS = ("indices", "values", "crow", "col", "ccol", "row", "lines", "places")  # anything is made a tensor first


def outcome(t, name, argument, value):
    function, positional, named = calls(t)[name]
    given = wrong(t)[value]
    if argument in positional:
        positional = {**positional, argument: given}
    else:
        named = {**named, argument: given}
    try:
        function(*positional.values(), **named)
    except Exception as error:
        return type(error)
    return None


@pytest.mark.parametrize("name", NAMES)
def test_wrong_arguments(name):
    _, positional, named = calls(torch)[name]
    found = []
    for argument in (*positional, *named):
        for value in wrong(torch):
            if (argument, value) in OTHERWISE or argument in OF_ARRAYS:
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                theirs, mine = (outcome(t, name, argument, value) for t in (torch, tensorgrad))
            if theirs is not None and (mine is None or not issubclass(mine, theirs)):
                found.append(f"{argument} is {value}: {theirs.__name__}, here {mine and mine.__name__}")
    assert not found, "\n".join(found)
