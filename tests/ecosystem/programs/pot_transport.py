"""POT: optimal transport between points that are moved by its gradients."""

import json
import warnings

import ot
import torch
from shared.training import some, three_steps

warnings.simplefilter("ignore")
torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
points, target = torch.randn(8, 2), torch.randn(10, 2) + 1
a, b = torch.full((8,), 1 / 8), torch.full((10,), 1 / 10)
moved = points.clone().requires_grad_()
losses = three_steps(torch.optim.SGD([moved], lr=5.0), lambda: ot.emd2(a, b, ot.dist(moved, target)))
cost = ot.dist(points, target)
numbers = {
    "plan": some(ot.emd(a, b, cost)), "sinkhorn": some(ot.sinkhorn(a, b, cost, 1.0)), "log": some(ot.sinkhorn(a, b, cost, 0.5, method="sinkhorn_log")),
    "unbalanced": some(ot.unbalanced.sinkhorn_unbalanced(a, b, cost, 1.0, 1.0)), "partial": some(ot.partial.entropic_partial_wasserstein(a, b, cost, 1.0, m=0.5)),
    "line": [ot.wasserstein_1d(points[:, 0], target[:, 0], p=2).item()], "gaussian": [ot.gaussian.empirical_bures_wasserstein_distance(points, target).item()],
    "sliced": [ot.sliced_wasserstein_distance(points, target, projections=torch.eye(2)).item()],
    "divergence": [ot.bregman.empirical_sinkhorn_divergence(points, target, 1.0).item()],
    "barycenter": some(ot.barycenter(torch.stack([a, torch.softmax(torch.arange(8.0), 0)], 1), ot.dist(points, points), 1.0)),
    "gromov": some(ot.gromov.entropic_gromov_wasserstein(ot.dist(points, points), ot.dist(target, target), a, b, epsilon=5.0, max_iter=5)),
    "mapped": some(ot.da.SinkhornTransport(reg_e=1.0).fit(Xs=points, Xt=target).transform(Xs=points)),
}  # fmt: skip
solved = ot.solve(cost.requires_grad_(), a, b, reg=1.0)
solved.value.backward()
numbers["solved"] = [solved.value.item(), *some(solved.plan), *some(cost.grad)]
print(json.dumps({"losses": losses, "numbers": numbers}))
