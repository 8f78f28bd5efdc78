"""opt_einsum: products of many tensors in an order of its choice, trained through."""

import json

import numpy as np
import opt_einsum
import torch
from shared.training import some, three_steps

torch.manual_seed(0)
cores = [torch.randn(2, 3).requires_grad_(), torch.randn(3, 4, 3).requires_grad_(), torch.randn(3, 2).requires_grad_()]
target = torch.randn(2, 4, 2)
formula = opt_einsum.contract_expression("ai,ijk,kb->ajb", *(core.shape for core in cores))
losses = three_steps(torch.optim.SGD(cores, lr=0.05), lambda: (formula(*cores) - target).square().mean())
matrices = [torch.randn(6, 6) for _ in range(4)]
numbers = {
    "chain": some(opt_einsum.contract("ab,bc,cd,de->ae", *matrices, optimize="dp")),
    "trace": [opt_einsum.contract("ab,bc,ca->", *matrices[:3], optimize="greedy").item()],
    "batch": some(opt_einsum.contract("zab,zbc,zcd->zad", *(torch.randn(3, 4, 4) for _ in range(3)))),
    "outer": some(opt_einsum.contract("a,b,c->abc", *(m[0] for m in matrices[:3]))),
    "ellipsis": some(opt_einsum.contract("...ab,...bc->...ac", torch.randn(2, 3, 4), torch.randn(2, 4, 5))),
    "numpy": opt_einsum.contract("ab,bc->ac", *(m.numpy() for m in matrices[:2]))[0].tolist(),
    "arrays": opt_einsum.contract_expression("ab,bc->ac", (6, 6), (6, 6))(
        *(m.numpy() for m in matrices[:2]), backend="torch"
    )[0].tolist(),
    "shared": [],
}
with opt_einsum.shared_intermediates():
    for last in matrices[2:]:
        numbers["shared"] += some(opt_einsum.contract("ab,bc,cd->ad", matrices[0], matrices[1], last))
path, told = opt_einsum.contract_path("ai,ijk,kb->ajb", *cores)
numbers["path"] = [len(path), float(told.opt_cost), float(np.prod(told.shapes[0] if told.shapes else (1,)))]
print(json.dumps({"losses": losses, "numbers": numbers}))
