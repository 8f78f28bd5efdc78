"""laplace-torch: posteriors of a trained classifier and regressor, of many structures, and their predictions."""

import json

import torch
from laplace import Laplace
from laplace.curvature import CurvlinopsEF, CurvlinopsGGN
from shared.training import some, three_steps
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_default_dtype(torch.float64)
x = torch.randn(24, 3)
labels, targets = (x[:, 0] > 0).long() + (x[:, 1] > 0).long(), torch.sin(x.sum(1, keepdim=True))
losses, numbers = [], {}


def trained(outputs, objective, wanted):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, outputs))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    losses.extend(three_steps(optimizer, lambda: objective(model(x), wanted)))
    return model.eval(), DataLoader(TensorDataset(x, wanted), batch_size=8)


for task, model, loader in (
    ("classification", *trained(3, nn.functional.cross_entropy, labels)),
    ("regression", *trained(1, nn.functional.mse_loss, targets)),
):
    for subset in ("all", "last_layer"):
        for structure in ("full", "kron", "diag"):
            for backend in (CurvlinopsGGN, CurvlinopsEF):
                la = Laplace(model, task, subset, structure, backend=backend)
                la.fit(loader)
                la.optimize_prior_precision(method="marglik", n_steps=3)
                predicted = (
                    la(x[:3], link_approx="probit")
                    if task == "classification"
                    else torch.cat([v.flatten() for v in la(x[:3])])
                )
                name = f"{task} {subset} {structure} {backend.__name__}"
                numbers[name] = [*some(predicted), la.log_marginal_likelihood().item(), *some(la.prior_precision)]
    torch.manual_seed(2)
    numbers[f"{task} samples"] = some(la.sample(3))
print(json.dumps({"losses": losses, "numbers": numbers}))
