"""Normalising flows of normflows: RealNVP, a spline flow and a masked autoregressive flow."""

import json
import os
import sys
import tempfile

import normflows as nf
import torch

torch.manual_seed(0)


def coupling():
    flows = []
    for _ in range(2):
        flows.append(nf.flows.AffineCouplingBlock(nf.nets.MLP([1, 8, 2], init_zeros=False)))
        flows.append(nf.flows.Permute(2, mode="swap"))
        flows.append(nf.flows.ActNorm(2))
    return nf.NormalizingFlow(nf.distributions.DiagGaussian(2), flows)


def spline():
    flows = [nf.flows.AutoregressiveRationalQuadraticSpline(2, 1, 8), nf.flows.LULinearPermute(2)]
    return nf.NormalizingFlow(nf.distributions.DiagGaussian(2, trainable=False), flows)


def masked():
    return nf.NormalizingFlow(
        nf.distributions.DiagGaussian(2), [nf.flows.MaskedAffineAutoregressive(2, 8, num_blocks=1)]
    )


losses, numbers = [], {}
points = nf.distributions.TwoMoons().sample(64)
folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
for make in (coupling, spline, masked):
    torch.manual_seed(1)
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for _ in range(3):
        optimizer.zero_grad()
        loss = model.forward_kld(points)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    file = os.path.join(folder, f"{make.__name__}.pt")
    if not os.path.exists(file):
        torch.save(model.state_dict(), file)
    again = make()
    again.load_state_dict(torch.load(file))
    numbers[make.__name__] = again.log_prob(points[:4]).tolist()
    numbers[f"{make.__name__} sample"] = model.sample(2)[0].flatten().tolist()
print(json.dumps({"losses": losses, "numbers": numbers}))
