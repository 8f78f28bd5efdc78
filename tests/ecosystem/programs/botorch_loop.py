"""Bayesian optimisation by botorch: a fitted model, acquisition functions, and their maximum."""

import json
import os
import sys
import tempfile
import warnings

import torch
from botorch.acquisition import LogExpectedImprovement, UpperConfidenceBound, qLogNoisyExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize, Standardize
from botorch.optim import optimize_acqf
from botorch.sampling import SobolQMCNormalSampler
from gpytorch.mlls import ExactMarginalLogLikelihood

warnings.simplefilter("ignore")
torch.manual_seed(0)
bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
x = torch.rand(8, 2, dtype=torch.float64)


def objective(x):
    return 1 - (x - 0.4).square().sum(-1, keepdim=True)


y = objective(x)


def make():
    return SingleTaskGP(x, y, input_transform=Normalize(d=2), outcome_transform=Standardize(m=1))


model = make()
likelihood = ExactMarginalLogLikelihood(model.likelihood, model)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
losses = []
model.train()
for _ in range(3):
    optimizer.zero_grad()
    loss = -likelihood(model(*model.train_inputs), model.train_targets)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
file = os.path.join(folder, "model.pt")
if not os.path.exists(file):
    torch.save(model.state_dict(), file)
again = make()
again.load_state_dict(torch.load(file))
model.eval()
posterior = model.posterior(torch.full((2, 2), 0.3, dtype=torch.float64))
torch.testing.assert_close(again.eval().posterior(torch.full((2, 2), 0.3, dtype=torch.float64)).mean, posterior.mean)

points = torch.rand(4, 1, 2, dtype=torch.float64)
sampler = SobolQMCNormalSampler(torch.Size([16]), seed=3)
noisy = qLogNoisyExpectedImprovement(model, x, sampler=sampler)
values = [
    LogExpectedImprovement(model, best_f=y.max())(points),
    UpperConfidenceBound(model, 0.2)(points),
    noisy(points),
]
fit_gpytorch_mll(likelihood)
candidate, value = optimize_acqf(UpperConfidenceBound(model, 0.2), bounds, q=1, num_restarts=2, raw_samples=16)
numbers = {
    "mean": posterior.mean.flatten().tolist(), "variance": posterior.variance.flatten().tolist(),
    "values": [v.tolist() for v in values], "sobol": sampler.base_samples.flatten()[:6].tolist(),
    "found": [round(v, 2) + 0.0 for v in candidate.flatten().tolist()],
}  # fmt: skip
print(json.dumps({"losses": losses, "numbers": numbers}))
