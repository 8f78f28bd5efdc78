"""nflows: autoregressive, coupling and spline flows learn a density; one is saved, loaded and sampled."""

import json
import sys
import tempfile

import torch
from nflows import distributions, flows, transforms
from nflows.nn.nets import ResidualNet
from shared.training import saved_and_loaded, some, three_steps

torch.manual_seed(0)
x, context = torch.randn(64, 4) @ torch.randn(4, 4), torch.randn(64, 2)


def net(inputs, outputs):
    return ResidualNet(inputs, outputs, hidden_features=8, context_features=2, num_blocks=1)


KINDS = {
    "masked affine": lambda: transforms.MaskedAffineAutoregressiveTransform(4, 8, context_features=2, num_blocks=1),
    "masked spline": lambda: transforms.MaskedPiecewiseRationalQuadraticAutoregressiveTransform(
        4, 8, context_features=2, num_bins=4, tails="linear", tail_bound=3.0, num_blocks=1
    ),
    "coupling": lambda: transforms.AffineCouplingTransform([1, 0, 1, 0], net),
    "spline": lambda: transforms.PiecewiseRationalQuadraticCouplingTransform(
        [0, 1, 0, 1], net, num_bins=4, tails="linear", tail_bound=3.0
    ),
    "cubic": lambda: transforms.PiecewiseCubicCouplingTransform([0, 1, 0, 1], net, num_bins=4, tails="linear", tail_bound=3.0),
    "LU": lambda: transforms.LULinear(4, identity_init=False), "QR": lambda: transforms.QRLinear(4, num_householder=2),
    "SVD": lambda: transforms.SVDLinear(4, num_householder=2), "norm": lambda: transforms.ActNorm(4),
}  # fmt: skip


def make(kind, seed=1):
    torch.manual_seed(seed)
    steps = [transforms.ReversePermutation(4), KINDS[kind](), transforms.PointwiseAffineTransform(0.1, 2.0)]
    return flows.Flow(transforms.CompositeTransform(steps), distributions.StandardNormal([4]))


losses, numbers = [], {}
for kind in KINDS:
    flow = make(kind)
    optimizer = torch.optim.Adam(flow.parameters(), lr=0.01)
    numbers[kind] = three_steps(optimizer, lambda flow=flow: -flow.log_prob(x, context).mean())
    losses += numbers[kind]
    if kind == "spline":
        again = saved_and_loaded(flow, make(kind, 5), sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
        torch.manual_seed(2)
        with torch.no_grad():
            numbers["samples"] = some(again.sample(3, context[:2]))
            numbers["noise"] = some(again.transform_to_noise(x[:4], context[:4]))
print(json.dumps({"losses": losses, "numbers": numbers}))
