"""Gradients of functions of sparse tensors are torch's: their values, layouts and numbers of stored elements."""

import warnings

import pytest

import tensorgrad
from tests.sparse.cases import CASES, difference, gradients

torch = pytest.importorskip("torch")

# What torch computes otherwise than it should, or what is missing here.
ELSEWHERE = {
    "mul loose": "torch's gradient is wrong if both factors repeat coordinates",
    "mul loose hybrid": "torch's gradient is wrong if both factors repeat coordinates",
    "mul rows": "torch's gradient is wrong if both factors repeat coordinates",
}


def result(T, case, how, wanted):
    """The gradients, or the exception."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return gradients(T, case, how, wanted)
        except Exception as error:  # compared with the other library's
            return error


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_torch(name):
    if name in ELSEWHERE:
        pytest.skip(ELSEWHERE[name])
    case = CASES[name]
    count, compared = len(case[1]), 0
    for how in ("dense", "sparse"):
        for wanted in (None, *([k] for k in range(count) if count > 1)):
            theirs = result(torch, case, how, wanted)
            if isinstance(theirs, Exception):
                continue  # torch has no kernel for it: nothing to compare
            mine = result(tensorgrad, case, how, wanted)
            if isinstance(mine, Exception):
                raise mine
            assert not difference(name, theirs, mine)
            compared += 1
    if not compared:
        pytest.skip("torch has no kernel for this on the CPU: nothing is compared")
