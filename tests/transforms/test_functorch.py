"""The names of the package `functorch`, beside it."""

import numpy as np
import pytest

import tensorgrad as tg
from tensorgrad import compat
from tensorgrad import functorch as ours
from tensorgrad.functorch import experimental as ours_experimental
from tests.support.compare import assert_equal

torch = pytest.importorskip("torch", reason="PyTorch's functorch is the oracle of these tests")
functorch = pytest.importorskip("functorch", reason="it comes with PyTorch")
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")


def module_pair(make):
    """Returns a module of torch and one of tensorgrad with the same parameters."""
    theirs, mine = make(torch.nn), make(tg.nn)
    mine.load_state_dict({k: tg.tensor(v.numpy()) for k, v in theirs.state_dict().items()})
    return theirs, mine


@pytest.mark.parametrize("tracking", [True, False])
def test_a_function_of_parameters(tracking):
    theirs, mine = module_pair(lambda nn: nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)))
    f, p = functorch.make_functional(theirs, not tracking)
    g, q = ours.make_functional(mine, not tracking)
    assert [t.requires_grad for t in p] == [t.requires_grad for t in q] == [tracking] * 4
    assert f.param_names == g.param_names and all(t.device.type == "meta" for t in g.parameters())
    assert_equal(q, p)
    assert q[0] is not mine[0].weight
    x = torch.randn(5, 3)
    expected, found = f(p, x), g(q, tg.tensor(x.numpy()))
    np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="shorter"):
        g(q[:1], tg.ones(5, 3))


def test_buffers_change_beside_the_module():
    theirs, mine = module_pair(lambda nn: nn.BatchNorm1d(2))
    f, p, b = functorch.make_functional_with_buffers(theirs)
    g, q, c = ours.make_functional_with_buffers(mine)
    assert f.buffer_names == g.buffer_names
    f(p, b, torch.tensor([[1.0, 2.0], [3.0, 5.0]]))
    g(q, c, tg.tensor([[1.0, 2.0], [3.0, 5.0]]))
    np.testing.assert_allclose(c[0].numpy(), b[0].numpy(), rtol=1e-6)
    assert_equal(c[2:], b[2:])
    assert mine.running_mean.tolist() == [0.0, 0.0]
    for library, model in ((functorch, theirs), (ours, mine)):
        with pytest.raises(RuntimeError, match="make_functional_with_buffers"):
            library.make_functional(model)


def test_ensembles():
    theirs, mine = zip(*[module_pair(lambda nn: nn.Linear(2, 1)) for _ in range(3)], strict=True)
    _, p, b = functorch.combine_state_for_ensemble(theirs)
    g, q, c = ours.combine_state_for_ensemble(mine)
    assert_equal(q, p)
    assert b == c == () and not q[0].requires_grad
    assert ours.vmap(g, (0, 0, None))(q, c, tg.ones(4, 2)).shape == (3, 4, 1)
    for library, nn in ((functorch, torch.nn), (ours, tg.nn)):
        for wrong in ([], [nn.Linear(2, 1), nn.ReLU()], [nn.Linear(2, 1), nn.Linear(2, 1).eval()]):
            with pytest.raises(RuntimeError, match="combine_state_for_ensemble: Expected"):
                library.combine_state_for_ensemble(wrong)


class Tied:
    """A module whose tensors have several names."""

    def __new__(cls, torch):
        class Module(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = torch.nn.Linear(3, 3)
                self.weight, self.bias = self.linear.weight, self.linear.bias
                self.register_buffer("shift", torch.ones(3))
                self.register_buffer("again", self.shift)

            def forward(self, x):
                return torch.nn.functional.linear(self.linear(x) + self.shift, self.weight, self.bias) * self.again

        return Module()


def test_tied_tensors_are_replaced_under_all_their_names():
    theirs, mine = Tied(torch), Tied(tg)
    mine.load_state_dict({k: tg.tensor(v.numpy()) for k, v in theirs.state_dict().items()})
    f, p, b = functorch.make_functional_with_buffers(theirs)
    g, q, c = ours.make_functional_with_buffers(mine)
    assert f.param_names == g.param_names and f.buffer_names == g.buffer_names and len(q) == 2 and len(c) == 1
    x = torch.randn(5, 3)
    expected = torch.func.grad(lambda p: f(p, b, x).square().sum())(p)
    found = tg.func.grad(lambda q: g(q, c, tg.tensor(x.numpy())).square().sum())(q)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one.detach().numpy(), other.detach().numpy(), rtol=1e-4)


def test_it_says_that_it_is_old():
    with pytest.warns(FutureWarning, match=r"`functorch\.make_functional` is deprecated as of PyTorch 2\.0"):
        ours.make_functional(tg.nn.Linear(1, 1))


def test_import_functorch_finds_it():
    compat.install()
    try:
        import functorch as found

        assert found is ours
    finally:
        compat.uninstall()
    import functorch as again
    from functorch import experimental

    assert again is functorch
    names = {name for name in dir(experimental) if name[0] != "_"}
    assert names - {*ours_experimental.__all__} == {"chunk_vmap"}  # `vmap(chunk_size=)` replaces it
    modules = ("torch", "compile", "experimental", "dim", "einops")
    public = {name for name in dir(functorch) if name[0] != "_" and name not in modules}
    assert public - {"make_fx"} <= {*dir(ours)}  # (there is no tracing of functions here)
