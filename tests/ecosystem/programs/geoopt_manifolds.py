"""geoopt: parameters on manifolds, their exponential maps and distances, and Riemannian optimizers."""

import json
import os
import sys
import tempfile

import geoopt
import torch
from shared.training import some, three_steps

torch.manual_seed(0)
torch.set_default_dtype(torch.float64)
folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
MANIFOLDS = {
    "sphere": (geoopt.Sphere(), (3, 4)), "ball": (geoopt.PoincareBall(), (3, 4)), "lorentz": (geoopt.Lorentz(), (3, 4)),
    "stiefel": (geoopt.CanonicalStiefel(), (5, 3)), "euclid": (geoopt.Euclidean(ndim=1), (3, 4)),
    "stereographic": (geoopt.Stereographic(k=-0.7), (3, 4)), "definite": (geoopt.SymmetricPositiveDefinite(), (3, 3)),
}  # fmt: skip
losses, numbers = [], {}
for name, (manifold, shape) in MANIFOLDS.items():
    torch.manual_seed(1)
    start, target = (manifold.projx(torch.randn(shape) * 0.3) for _ in range(2))
    if name == "definite":
        start, target = (a @ a.T + torch.eye(3) for a in (torch.randn(3, 3), torch.randn(3, 3)))
    kinds = (geoopt.optim.RiemannianSGD, geoopt.optim.RiemannianAdam)
    for kind, options in zip(kinds, ({"momentum": 0.9}, {"amsgrad": True})):
        point = geoopt.ManifoldParameter(start.clone(), manifold=manifold)
        optimizer = kind([point], lr=0.001 if name == "definite" else 0.05, **options)
        its = three_steps(optimizer, lambda point=point, target=target: (point - target).pow(2).sum())
        losses += its
        numbers[f"{name} {kind.__name__}"] = [*its, *some(point)]
    file = os.path.join(folder, f"{name}.pt")
    if not os.path.exists(file):
        torch.save(point.detach().clone().as_subclass(torch.Tensor), file)
    torch.testing.assert_close(torch.load(file), point.detach().as_subclass(torch.Tensor))
    if name not in ("stiefel", "definite"):
        direction = manifold.proju(start, torch.randn(shape) * 0.1)
        reached = manifold.expmap(start, direction)
        numbers[name] = [*some(reached), *some(manifold.logmap(start, reached)), *some(manifold.dist(start, target))]
print(json.dumps({"losses": losses, "numbers": numbers}))
