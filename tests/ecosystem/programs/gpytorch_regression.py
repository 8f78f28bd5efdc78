"""Gaussian processes of gpytorch: exact, and variational with inducing points."""

import json
import os
import sys
import tempfile

import gpytorch
import torch


class Exact(gpytorch.models.ExactGP):
    def __init__(self, x, y, likelihood):
        super().__init__(x, y, likelihood)
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(
            gpytorch.kernels.RBFKernel(ard_num_dims=2) + gpytorch.kernels.MaternKernel(nu=2.5)
        )

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


class Variational(gpytorch.models.ApproximateGP):
    def __init__(self, points):
        distribution = gpytorch.variational.CholeskyVariationalDistribution(len(points))
        super().__init__(gpytorch.variational.VariationalStrategy(self, points, distribution))
        self.mean_module = gpytorch.means.LinearMean(2)
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.PeriodicKernel())

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


torch.manual_seed(0)
x = torch.rand(30, 2, dtype=torch.float64)
y = torch.sin(6 * x[:, 0]) + x[:, 1] + 0.1 * torch.randn(30, dtype=torch.float64)
test = torch.rand(5, 2, dtype=torch.float64)
likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
model = Exact(x, y, likelihood).double()
model.train(), likelihood.train()
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
losses = []
for _ in range(3):
    optimizer.zero_grad()
    loss = -objective(model(x), y)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
model.eval(), likelihood.eval()
with torch.no_grad(), gpytorch.settings.fast_pred_var():
    prediction = likelihood(model(test))
lower, upper = prediction.confidence_region()

noise = gpytorch.likelihoods.GaussianLikelihood().double()
sparse = Variational(x[:8].clone()).double()
sparse.train(), noise.train()
optimizer = torch.optim.Adam([*sparse.parameters(), *noise.parameters()], lr=0.05)
objective = gpytorch.mlls.VariationalELBO(noise, sparse, num_data=30)
for _ in range(3):
    optimizer.zero_grad()
    loss = -objective(sparse(x), y)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
file = os.path.join(folder, "process.pt")
if not os.path.exists(file):
    torch.save(model.state_dict(), file)
again = Exact(x, y, gpytorch.likelihoods.GaussianLikelihood()).double()
again.load_state_dict(torch.load(file))
again.eval()
with torch.no_grad():
    torch.testing.assert_close(again(test).mean, prediction.mean)
numbers = {
    "mean": prediction.mean.tolist(), "variance": prediction.variance.tolist(), "lower": lower.tolist(),
    "upper": upper.tolist(), "sample": prediction.sample().tolist(),
}  # fmt: skip
print(json.dumps({"losses": losses, "numbers": numbers}))
