"""What is computed of weights alone takes their place in a file, if that is not larger for it."""

import pytest

import tensorgrad as torch
from tensorgrad import nn
from tensorgrad.nn import functional as F
from tests.onnx.compare import check, operators


class Standardized(nn.Conv2d):
    """A convolution whose weights have the same mean and variance for each channel."""

    def forward(self, x):
        weight = F.batch_norm(self.weight.reshape(1, self.out_channels, -1), None, None, training=True)
        return F.conv2d(x, weight.reshape_as(self.weight), self.bias)


class Spread(nn.Module):
    """A matrix made of two vectors: larger than both."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Parameter(torch.randn(5, 1)), nn.Parameter(torch.randn(1, 4))

    def forward(self, x):
        return x @ (self.a * self.b)


class Shared(nn.Module):
    """Weights that are needed as they are, too; a result of weights alone; and a part of another."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Parameter(torch.randn(3, 3)), nn.Parameter(torch.randn(3, 3))

    def forward(self, x):
        half = self.b.tanh()
        return x @ self.a.exp() + self.a, x @ half, x @ half.cos(), self.b.sin()


class Loop(nn.Module):
    """A loop that begins with a weight, of which a turn makes another. Nothing needs the number by which it ends."""

    def __init__(self):
        super().__init__()
        self.a = nn.Parameter(torch.full((3,), 0.5))

    def forward(self, x):
        _, total = torch.while_loop(
            lambda n, t: n < 3, lambda n, t: (n + 1, t.sin() + x), (torch.tensor(0), self.a.detach())
        )
        return total


def names(program):
    return {t.name for t in program.model.graph.initializers if t.array.size > 1}


COMPUTED = {
    "a standardized weight": (lambda: Standardized(2, 3, 2), (2, 2, 4, 4), ["Conv"], {"weight", "bias"}),
    "and a norm after it": (
        lambda: nn.Sequential(Standardized(2, 3, 2), nn.BatchNorm2d(3)), (2, 2, 4, 4), ["Conv"], {"0.weight", "0.bias"},
    ),
    "a normalized weight": (
        lambda: nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)), (2, 4), None,
        {"parametrizations.weight.original1", "bias"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", COMPUTED)
def test_what_is_computed_of_weights_is_a_weight(name):
    torch.manual_seed(0)
    make, shape, expected, weights = COMPUTED[name]
    model = make().eval()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    program = check(model, (torch.randn(*shape),))
    assert expected is None or operators(program) == expected
    assert names(program) == weights
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert len(operators(check(model, (torch.randn(*shape),), optimize=False))) > len(operators(program))


def test_what_would_make_the_file_larger_stays():
    torch.manual_seed(0)
    program = check(Spread(), (torch.randn(2, 5),))
    assert "Mul" in operators(program) and names(program) == {"a", "b"}
    program = check(Shared(), (torch.randn(3, 3),))
    assert {"Exp", "Tanh", "Cos", "Sin"} <= set(operators(program)) and names(program) == {"a", "b"}


def test_what_a_loop_changes_is_not_constant():
    assert "Loop" in operators(check(Loop(), (torch.randn(3),)))


def test_random_numbers_stay_random():
    class Noise(nn.Linear):
        def forward(self, x):
            return F.linear(x, F.dropout(self.weight, 0.5, training=True))

    program = torch.onnx.export(Noise(40, 40, bias=False), (torch.ones(1, 40),))
    assert "RandomUniformLike" in operators(program) and "weight" in names(program)
