"""tensorly: decompositions of tensors, and a layer in factors that is trained."""

import json

import tensorly as tl
import torch
from shared.training import some, three_steps
from tensorly import decomposition as parts
from tensorly.random import random_cp

tl.set_backend("pytorch")
torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
x, y = torch.randn(8, 4), torch.randn(8, 3, 2)
weights, factors = torch.ones(2), [torch.randn(size, 2).requires_grad_() for size in (4, 3, 2)]


def loss_of():
    return (tl.tenalg.inner(x, tl.cp_to_tensor((weights, factors)), n_modes=1) - y).square().mean()


losses = three_steps(torch.optim.SGD(factors, lr=0.02), loss_of)
data = tl.cp_to_tensor(random_cp((5, 6, 4), rank=3, random_state=0)) + 0.01 * torch.randn(5, 6, 4)
cp, errors = parts.parafac(data, rank=3, n_iter_max=10, init="svd", return_errors=True)
core, matrices = parts.tucker(data, rank=[3, 3, 2], n_iter_max=5)
tube = parts.tensor_train(data, rank=[1, 3, 2, 1])
ring = parts.tensor_ring(data, rank=[2, 2, 3, 2])
positive = parts.non_negative_parafac(data.abs(), rank=2, n_iter_max=5, init="svd")
numbers = {
    "cp": [*some(tl.cp_to_tensor(cp)), *(float(e) for e in errors[-2:])], "tucker": [*some(tl.tucker_to_tensor((core, matrices))), *core.shape],
    "train": some(tl.tt_to_tensor(tube)), "ring": some(tl.tr_to_tensor(ring)), "positive": some(tl.cp_to_tensor(positive)),
    "unfolded": some(tl.unfold(data, 1)), "folded": some(tl.fold(tl.unfold(data, 1), 1, data.shape)), "mode": some(tl.tenalg.mode_dot(data, torch.randn(2, 6), 1)),
    "khatri": some(tl.tenalg.khatri_rao(factors)), "kron": some(tl.tenalg.kronecker([f.detach() for f in factors[:2]])),
    "svd": tl.tenalg.svd_interface(data[0], n_eigenvecs=2)[1].tolist(), "norm": [float(tl.norm(data, 1)), float(tl.norm(data, 2))],
    "robust": [*some(parts.robust_pca(data, n_iter_max=3)[0])], "numpy": tl.to_numpy(data)[0, 0].tolist(),
}  # fmt: skip
print(json.dumps({"losses": losses, "numbers": numbers}))
