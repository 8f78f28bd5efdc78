"""Copies and pickles of tensors: what they share, and what they keep."""

import copy
import io
import pickle

import tensorgrad as torch_
from tests.support.alike import alike, error


@alike
def test_deepcopy(torch):
    x = torch.arange(4.0, requires_grad=True)
    (x * x).sum().backward()
    x.name_of_mine = "x"
    base = torch.zeros(2, 3)
    holder = {"x": x, "again": x, "base": base, "view": base[1], "view 2": base.t()}
    copied = copy.deepcopy(holder)
    copied["view"].add_(1)
    return (
        copied["x"] is copied["again"],
        copied["x"],
        copied["x"].grad,
        copied["x"].grad is x.grad,
        copied["x"].name_of_mine,
        copied["base"],  # the copies share memory as the originals did
        copied["view 2"],
        copied["view 2"].stride(),
        base,
        error(copy.deepcopy, x * 2).partition(" at the moment")[0],
        copy.copy(x).data_ptr() == x.data_ptr(),
    )


@alike
def test_pickle(torch):
    x = torch.arange(4.0, requires_grad=True)
    x.name_of_mine = "x"
    base = torch.arange(6).reshape(2, 3)
    values = {
        "x": x,
        "again": x,
        "base": base,
        "view": base[1],
        "t": base.t(),
        "bool": torch.tensor([True]),
        "zero": torch.zeros(0),
    }
    loaded = pickle.loads(pickle.dumps(values))
    computed = pickle.loads(pickle.dumps(x * 2))
    return (
        loaded["x"],
        loaded["x"].name_of_mine,
        loaded["x"] is loaded["again"],
        loaded["base"],
        loaded["t"],
        loaded["t"].stride(),
        loaded["bool"],
        loaded["zero"],
        base,
        computed,
        computed.is_leaf,
    )


def test_pickles_keep_shared_memory_shared():
    base = torch_.arange(6).reshape(2, 3)
    loaded = pickle.loads(pickle.dumps({"base": base, "view": base[1], "t": base.t()}))
    loaded["view"].add_(100)
    assert loaded["base"].tolist() == [[0, 1, 2], [103, 104, 105]] == loaded["t"].t().tolist()
    assert loaded["base"]._version == loaded["t"]._version == 1 and base.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_pickle_protocols_and_dtypes():
    for dtype in (torch_.float16, torch_.float64, torch_.complex64, torch_.uint8, torch_.bool):
        x = torch_.ones(2, 3).to(dtype)
        for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
            buffer = io.BytesIO()
            pickle.dump(x, buffer, protocol)
            buffer.seek(0)
            loaded = pickle.load(buffer)
            assert loaded.dtype is dtype and loaded.tolist() == x.tolist()
