"""Memory that grows (`resize_`, `out=`, `set_`, storages): all tensors that share it see the grown memory."""

import gc

import pytest

import tensorgrad
from tests.support.alike import alike, error

pytestmark = pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")


@pytest.fixture(autouse=True, scope="module")
def a_small_program():
    """The search for tensors that share memory looks at every object: leave out what other tests have made."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


SHARING = {
    "slice": lambda torch, x: x[1:],
    "view": lambda torch, x: x.view(2, 2),
    "t": lambda torch, x: x.view(2, 2).t(),
    "as_strided": lambda torch, x: x.as_strided((2,), (2,)),
    "expand": lambda torch, x: x[1].expand(3),
    "empty": lambda torch, x: x[:0],
    "detach": lambda torch, x: x.detach(),
    "view of detach": lambda torch, x: x.detach()[2:],
    "data": lambda torch, x: x.data,
    "data of view": lambda torch, x: x[1:].data,
    "view of data": lambda torch, x: x.data[1:],
    "data of data": lambda torch, x: x.data.data,
    "other dtype": lambda torch, x: x.view(torch.int32),
    "real": lambda torch, x: torch.view_as_real(torch.view_as_complex(x.view(2, 2))),
    "set_": lambda torch, x: torch.empty(0).set_(x),
    "set_ to storage": lambda torch, x: torch.empty(0).set_(x.untyped_storage()),
}
GROWING = {
    "resize_": lambda torch, x: x.resize_(3, 4),
    "channels_last": lambda torch, x: x.resize_(1, 3, 2, 2, memory_format=torch.channels_last),
    "resize_as_": lambda torch, x: x.resize_as_(torch.ones(12)),
    "out": lambda torch, x: torch.add(torch.ones(12), 1, out=x),
    "out of several": lambda torch, x: torch.sort(torch.ones(12), out=(x, torch.empty(0, dtype=torch.int64))),
    "out of a composite": lambda torch, x: torch.linspace(0, 1, 12, out=x),
    "set_": lambda torch, x: x.set_(x.untyped_storage(), 0, (12,)),
    "set_ of a tensor": lambda torch, x: x.set_(x, 0, (12,), (1,)),
    "storage": lambda torch, x: x.untyped_storage().resize_(48),
}


@pytest.mark.parametrize("growing", GROWING)
@pytest.mark.parametrize("sharing", SHARING)
def test_tensors_that_share_memory_see_it_grown(sharing, growing):
    def scenario(torch):
        found = []
        for other_way in (False, True):
            x = torch.arange(4.0)
            y = SHARING[sharing](torch, x)
            first, second = (y, x) if other_way else (x, y)
            if other_way and (sharing in ("expand", "other dtype", "empty") or growing.startswith("set_")):
                continue
            GROWING[growing](torch, first)
            held = first.untyped_storage().nbytes(), second.untyped_storage().nbytes()
            offset = (first.data_ptr() - second.data_ptr()) if second.numel() else None
            first.fill_(7)
            seen = second.tolist()
            if sharing != "expand":
                second.fill_(2)
            found += [held, offset, seen, first, second.shape, second.stride()]
        return found

    scenario.__qualname__ = scenario.__name__ = "test_scenario"
    alike(scenario)()


@alike
def test_what_requires_grad_is_not_resized(torch):
    found = []
    for recording in (True, False):
        for shape in ((2,), (3,), (1,)):
            for make in (lambda x: x, lambda x: x * 1, lambda x: (x * 1)[:1], lambda x: x.detach(), lambda x: x.data):
                with torch.set_grad_enabled(recording):
                    for grow in (
                        lambda t, shape: t.resize_(shape),
                        lambda t, shape: t.resize_as_(torch.ones(shape)),
                        lambda t, shape: torch.add(torch.ones(shape), 1, out=t),
                        lambda t, shape: torch.sort(torch.ones(shape), out=(t, torch.empty(0, dtype=torch.int64))),
                    ):
                        t = make(torch.ones(2, requires_grad=True))
                        if t.requires_grad or not recording:
                            found += [error(grow, t, shape), t.shape, t._version]
    return found


@alike
def test_gradients_of_views_whose_memory_has_grown(torch):
    x = torch.arange(4.0)
    v = x[1:3]
    x.resize_(8).fill_(1)
    w = torch.tensor(3.0, requires_grad=True)
    v.mul_(w)
    x.sum().backward()
    return w.grad, x.detach(), v.detach()


@alike
def test_what_was_saved_before_memory_grew(torch):
    x = torch.arange(1.0, 5.0)
    w = torch.ones(4, requires_grad=True)
    y = (w * x).sum()
    x.resize_(9)
    return error(y.backward).split(":")[0]


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_memory_of_one_tensor_grows_without_a_search(device, monkeypatch):
    """The search for those that share the memory looks at every object of the program."""
    searched = []
    referrers = gc.get_referrers
    monkeypatch.setattr(gc, "get_referrers", lambda *objects: searched.append(objects) or referrers(*objects))
    ones = tensorgrad.ones(5, device=device)
    x = tensorgrad.empty(0, device=device)
    x.resize_(3).resize_(5)
    x[1:].resize_(3)
    tensorgrad.add(ones, 1, out=tensorgrad.empty(0, device=device))
    tensorgrad.cat([ones, ones], out=x.resize_(0))
    (ones + 1).resize_(7)
    assert not searched
    y = x.data
    x.resize_(20)
    assert searched and y.untyped_storage().nbytes() == 80


def test_memory_that_processes_share_takes_data_along():
    x = tensorgrad.arange(4.0)
    data, view = x.data, x[1:]
    x.share_memory_()
    x.fill_(7)
    assert data.is_shared() and view.is_shared() and data.tolist() == [7] * 4 and view.tolist() == [7] * 3


@alike
def test_the_layout_of_an_out_that_was_resized(torch):
    a, last = torch.arange(4.0).view(2, 2), torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last)
    found = []
    for x, y in ((a.t(), a), (a, a.t()), (a.t(), a.t()), (a[0], a.t()), (last, last), (last, torch.ones(5))):
        for size in (0, 30):
            out = torch.zeros(size)
            torch.add(x, y, out=out)
            found += [out.stride(), out.is_contiguous(), out.storage_offset()]
    return found
