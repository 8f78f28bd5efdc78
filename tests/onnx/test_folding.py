"""Batch norms in evaluation mode become part of the product before them."""

import pytest

import tensorgrad as torch
from tensorgrad import nn
from tests.onnx.compare import check, operators


def with_statistics(module):
    """A module in evaluation mode whose batch norms have seen something."""
    for i, norm in enumerate(m for m in module.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)):
        count = norm.num_features
        norm.running_mean.copy_(torch.arange(count).sin() + i)
        norm.running_var.copy_(torch.arange(count).cos().abs() + 0.1)
        if norm.affine:
            norm.weight.data.copy_(torch.linspace(-1, 2, count))
            norm.bias.data.copy_(torch.linspace(0.5, -0.5, count))
    return module.eval()


FOLDED = {
    "Conv with a bias": (lambda: nn.Sequential(nn.Conv2d(2, 4, 3, groups=2), nn.BatchNorm2d(4)), (2, 2, 5, 5)),
    "Conv without": (lambda: nn.Sequential(nn.Conv1d(2, 3, 2, bias=False), nn.BatchNorm1d(3)), (2, 2, 5)),
    "Conv, no weights in the norm": (
        lambda: nn.Sequential(nn.Conv3d(1, 2, 2), nn.BatchNorm3d(2, affine=False)), (1, 1, 3, 3, 3),
    ),
    "ConvTranspose": (lambda: nn.Sequential(nn.ConvTranspose2d(2, 3, 2), nn.BatchNorm2d(3)), (1, 2, 4, 4)),
    "ConvTranspose, groups": (
        lambda: nn.Sequential(nn.ConvTranspose1d(4, 6, 2, groups=2, bias=False), nn.BatchNorm1d(6)), (2, 4, 5),
    ),
    "Gemm": (lambda: nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3, eps=0.1)), (5, 4)),
    "Gemm without a bias": (lambda: nn.Sequential(nn.Linear(4, 3, bias=False), nn.BatchNorm1d(3)), (5, 4)),
    "Gemm, and two norms": (lambda: nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.BatchNorm1d(3)), (5, 4)),
    "Gemm of float64": (lambda: nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).double(), (5, 4)),
}  # fmt: skip


@pytest.mark.parametrize("name", FOLDED)
def test_a_norm_after_a_product_is_part_of_it(name):
    torch.manual_seed(0)
    make, shape = FOLDED[name]
    model = with_statistics(make())
    before = {key: value.clone() for key, value in model.state_dict().items()}
    x = torch.randn(*shape, dtype=next(model.parameters()).dtype)
    exported = check(model, (x,))
    assert operators(exported) == [name.partition(" ")[0].rstrip(",")]
    assert [t.name for t in exported.model.graph.initializers] == ["0.weight", "0.bias"]
    for key, value in model.state_dict().items():
        assert torch.equal(value, before[key]), key
    for option in ("optimize", "do_constant_folding", "export_params"):
        assert "BatchNormalization" in operators(check(model, (x,), **{option: False})), option
    assert "BatchNormalization" in operators(check(model, (x,), keep_initializers_as_inputs=True))


class Twice(nn.Module):
    """A product whose result goes to its norm, and elsewhere; and one of which there are two calls."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(3, 3), nn.Linear(3, 3), nn.BatchNorm1d(3)

    def forward(self, x):
        x = self.a(x)
        x = self.norm(x) + x
        return self.norm(self.b(x)) + self.b(x + 1)


KEPT = {
    "needed elsewhere": (Twice, (5, 3), 2),
    "something between": (lambda: nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.BatchNorm1d(3)), (5, 4), 1),
    "the input": (lambda: nn.BatchNorm1d(3), (5, 3), 1),
}  # fmt: skip


@pytest.mark.parametrize("name", KEPT)
def test_other_norms_stay(name):
    torch.manual_seed(0)
    make, shape, count = KEPT[name]
    exported = check(with_statistics(make()), (torch.randn(*shape),))
    assert operators(exported).count("BatchNormalization") == count


def test_narrow_numbers_stay():
    model = with_statistics(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))).half()
    assert operators(torch.onnx.export(model, (torch.ones(2, 4).half(),))) == ["Gemm", "BatchNormalization"]


def test_training_is_exported_with_its_norms():
    model = with_statistics(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)))
    frozen = torch.onnx.export(
        lambda x: nn.functional.batch_norm(model[0](x), model[1].running_mean, model[1].running_var),
        (torch.ones(2, 4),), training=torch.onnx.TrainingMode.TRAINING,
    )  # fmt: skip
    assert operators(frozen) == ["Gemm", "BatchNormalization"]


def test_biases_of_zeros_are_left_out():
    layers = nn.Sequential(nn.Conv2d(1, 2, 3, bias=False), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 3))
    with torch.no_grad():
        layers[3].bias.zero_()
    program = check(layers.eval(), (torch.randn(2, 1, 4, 4),))
    assert [t.name for t in program.model.graph.initializers if "bias" in t.name] == []
    kept = check(layers.eval(), (torch.randn(2, 1, 4, 4),), optimize=False)
    assert "3.bias" in [t.name for t in kept.model.graph.initializers]


class Positions(nn.Module):
    """The beginning of a table, by positions in a buffer."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(64, 4)
        self.register_buffer("positions", torch.arange(64).view(1, 64))

    def forward(self, x):
        return x + self.table(self.positions[:, : x.shape[1]])


def test_small_parts_of_weights_are_constants():
    program = check(Positions(), (torch.randn(1, 9, 4),))
    assert operators(program) == ["Add"]
    assert [t.array.shape for t in program.model.graph.initializers if t.array.size > 1] == [(1, 9, 4)]
    whole = check(Positions(), (torch.randn(1, 40, 4),))
    assert "table.weight" in [t.name for t in whole.model.graph.initializers]  # the part is as large
    for more in ({"optimize": False}, {"dynamic_shapes": ({1: "time"},)}):
        program = check(Positions(), (torch.randn(1, 9, 4),), **more)
        assert "table.weight" in [t.name for t in program.model.graph.initializers]
