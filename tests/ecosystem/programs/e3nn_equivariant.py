"""e3nn: spherical harmonics, tensor products and gates in a network that turns with its input; saved and loaded."""

import json
import sys
import tempfile

import torch
from e3nn import o3
from e3nn.math import soft_one_hot_linspace
from e3nn.nn import BatchNorm, FullyConnectedNet, Gate, NormActivation
from shared.training import saved_and_loaded, some, three_steps
from torch import nn

torch.set_default_dtype(torch.float64)
IN, HIDDEN, OUT = o3.Irreps("4x0e + 2x1o"), o3.Irreps("8x0e + 4x1o + 2x2e"), o3.Irreps("1x0e + 1x1o")
SH = o3.Irreps.spherical_harmonics(2)


class Convolution(nn.Module):
    def __init__(self, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.product = o3.FullyConnectedTensorProduct(IN, SH, HIDDEN, shared_weights=False)
        self.radial = FullyConnectedNet([6, 12, self.product.weight_numel], torch.nn.functional.silu)
        self.gate = Gate("8x0e", [torch.tanh], "6x0e", [torch.sigmoid], "4x1o + 2x2e")
        self.mix = o3.Linear(HIDDEN, self.gate.irreps_in)
        self.norm, self.act = BatchNorm(self.gate.irreps_out), NormActivation(self.gate.irreps_out, torch.sigmoid)
        self.out = o3.Linear(self.gate.irreps_out, OUT)

    def forward(self, features, places):
        edges = places[:, None] - places[None]
        i, j = torch.nonzero(edges.norm(dim=-1) > 0, as_tuple=True)
        vectors = edges[i, j]
        angles = o3.spherical_harmonics(SH, vectors, normalize=True, normalization="component")
        lengths = soft_one_hot_linspace(vectors.norm(dim=1), 0.0, 4.0, 6, basis="smooth_finite", cutoff=True)
        messages = self.product(features[i], angles, self.radial(lengths))
        summed = torch.zeros(len(places), messages.shape[1]).index_add(0, j, messages) / len(places) ** 0.5
        return self.out(self.act(self.norm(self.gate(self.mix(summed)))))


torch.manual_seed(1)
features, places = IN.randn(7, -1), torch.randn(7, 3)
target = OUT.randn(7, -1)
model = Convolution()
losses = three_steps(
    torch.optim.Adam(model.parameters(), lr=0.01), lambda: (model(features, places) - target).pow(2).mean()
)
again = saved_and_loaded(model, Convolution(3), sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
turn = o3.rand_matrix()
turned = again(features @ IN.D_from_matrix(turn).T, places @ turn.T)
torch.testing.assert_close(turned, again(features, places) @ OUT.D_from_matrix(turn).T)
numbers = {"out": some(again(features, places)), "turn": turn.tolist(), "wigner": some(o3.wigner_3j(1, 2, 3))}
numbers["harmonics"] = some(o3.spherical_harmonics([0, 1, 2, 3, 4], places, normalize=True))
numbers["D"] = some(o3.Irrep("3o").D_from_angles(*o3.rand_angles()))
grid = o3.ToS2Grid(2, (6, 7))
numbers["grid"] = [*some(grid(torch.randn(9))), *some(o3.FromS2Grid((6, 7), 2)(torch.randn(6, 7)))]
reduced = o3.ReducedTensorProducts("ij=ji", i="1o")
numbers["reduced"] = [str(reduced.irreps_out), *some(reduced(torch.randn(3), torch.randn(3)))]
print(json.dumps({"losses": losses, "numbers": numbers}))
