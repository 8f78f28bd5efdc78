"""Tensors without dimensions or elements, those with too many, and losses of integers."""

import pytest

from tests.support.alike import alike, error

CALLS = {
    "repeat_interleave": lambda t, x, d: x.repeat_interleave(2, d),
    "repeat_interleave of a tensor": lambda t, x, d: x.repeat_interleave(t.tensor([2]), d),
    "take_along_dim": lambda t, x, d: t.take_along_dim(x, t.tensor(0), d),
}


@pytest.mark.parametrize("dim", [0, -1, 1, None])
@pytest.mark.parametrize("name", CALLS)
def test_a_dimension_of_a_number(name, dim):
    def scenario(torch):
        return error(CALLS[name], torch, torch.tensor(2.0), dim).split(":")[0]

    scenario.__name__ = scenario.__qualname__ = "test_scenario"
    alike(scenario)()


@alike
def test_integers_of_nothing_by_zero(torch):
    empty, one = torch.zeros(0, dtype=torch.int64), torch.ones(1, dtype=torch.int64)
    found = []
    for name in ("fmod", "remainder", "floor_divide"):
        function = getattr(torch, name)
        for x, y in ((empty, 0), (empty, one * 0), (one, 0), (one, empty), (empty, empty), (one, one * 0)):
            text = error(function, x, y)
            found.append(function(x, y) if text == "nothing" else text.split(":")[0])
    return found


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@pytest.mark.parametrize("name", ["std", "var", "std_mean", "var_mean"])
def test_tangents_of_deviations_of_nothing(name):
    def scenario(torch):
        found = []
        for correction in (0, 1):
            for shape in ((2, 0), (0,), (1,), (2, 3)):
                x = torch.arange(6.0, dtype=torch.float64)[: torch.Size(shape).numel()].reshape(shape)
                call = lambda x: getattr(torch, name)(x, dim=-1, correction=correction)
                made, tangent = torch.func.jvp(call, (x,), (torch.ones_like(x),))
                found += [made, tangent]
        return found

    scenario.__name__ = scenario.__qualname__ = "test_scenario"
    alike(scenario)()


@alike
def test_the_mean_of_bools_is_refused(torch):
    x, i = torch.zeros(2, 3).bool(), torch.zeros(1, 3, dtype=torch.int64)
    return error(x.scatter_reduce, 0, i, torch.ones(1, 3).bool(), "mean")


@alike
def test_margins_make_losses_of_integers_floating_point(torch):
    x, y, sign = torch.tensor([3, 1]), torch.tensor([1, 2]), torch.tensor([1, -1])
    loss = torch.nn.functional.margin_ranking_loss
    return [loss(x, y, sign, margin, reduction=r) for margin in (0, 1, 0.5) for r in ("mean", "sum", "none")]


def test_more_dimensions_than_numpy_has():
    import tensorgrad as torch

    for call in (
        lambda: torch.ones((1,) * 65),
        lambda: torch.ones((1,) * 64).unsqueeze(0),
        lambda: torch.ones(1).expand((1,) * 65),
        lambda: torch.ones(1).reshape((1,) * 65),
    ):
        assert "only tensors with up to 64 dims are supported" in error(call)
