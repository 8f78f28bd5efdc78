"""Inference of pyro: SVI with an automatic guide, and a few steps of HMC and NUTS."""

import json
import os
import sys
import tempfile

import pyro
import pyro.distributions as dist
import torch
from pyro.infer import HMC, MCMC, NUTS, SVI, Predictive, Trace_ELBO, TraceEnum_ELBO, config_enumerate
from pyro.infer.autoguide import AutoMultivariateNormal, AutoNormal
from pyro.optim import ClippedAdam


def regression(x, y=None):
    weight = pyro.sample("weight", dist.Normal(torch.zeros(2), 1.0).to_event(1))
    bias = pyro.sample("bias", dist.Normal(0.0, 1.0))
    scale = pyro.sample("scale", dist.LogNormal(0.0, 0.5))
    with pyro.plate("data", len(x)):
        return pyro.sample("y", dist.Normal(x @ weight + bias, scale), obs=y)


@config_enumerate
def mixture(points):
    weights = pyro.param("weights", torch.tensor([0.4, 0.6]), constraint=dist.constraints.simplex)
    means = pyro.param("means", torch.tensor([-1.0, 1.5]))
    with pyro.plate("points", len(points)):
        kind = pyro.sample("kind", dist.Categorical(weights))
        pyro.sample("value", dist.Normal(means[kind], 0.7), obs=points)


pyro.set_rng_seed(0)
x = torch.randn(20, 2)
y = x @ torch.tensor([1.0, -2.0]) + 0.5 + 0.1 * torch.randn(20)
losses = []
guide = AutoNormal(regression)
svi = SVI(regression, guide, ClippedAdam({"lr": 0.05, "clip_norm": 10.0}), Trace_ELBO(num_particles=2))
losses += [svi.step(x, y) for _ in range(3)]
medians = {name: value.tolist() for name, value in guide.median().items()}

folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
file = os.path.join(folder, "guide.pt")
if not os.path.exists(file):
    torch.save({name: value.detach() for name, value in pyro.get_param_store().items()}, file)
for name, value in torch.load(file).items():
    torch.testing.assert_close(value, pyro.param(name).detach())
drawn = Predictive(regression, guide=guide, num_samples=3)(x[:2])

pyro.clear_param_store()
full = AutoMultivariateNormal(regression)
svi = SVI(regression, full, pyro.optim.Adam({"lr": 0.02}), Trace_ELBO())
losses += [svi.step(x, y) for _ in range(3)]
pyro.clear_param_store()
svi = SVI(mixture, lambda points: None, pyro.optim.Adam({"lr": 0.1}), TraceEnum_ELBO(max_plate_nesting=1))
losses += [svi.step(y) for _ in range(3)]
weights = pyro.param("weights").tolist()

chains = []
for kernel in (HMC(regression, step_size=0.02, num_steps=3, adapt_step_size=False), NUTS(regression, max_tree_depth=3)):
    mcmc = MCMC(kernel, num_samples=2, warmup_steps=2, disable_progbar=True)
    mcmc.run(x, y)
    chains.append(mcmc.get_samples()["weight"].tolist())
numbers = {
    "medians": list(medians.values())[1:], "weight": medians["weight"], "mixture": weights,
    "predictive": drawn["y"].tolist(), "hmc": chains[0], "nuts": chains[1],
}  # fmt: skip
print(json.dumps({"losses": losses, "numbers": numbers}))
