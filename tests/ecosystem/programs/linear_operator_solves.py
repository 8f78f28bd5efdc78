"""Structured matrices of linear_operator: solves, log determinants and their gradients."""

import json

import torch
from linear_operator import to_linear_operator
from linear_operator.operators import (
    AddedDiagLinearOperator,
    BlockDiagLinearOperator,
    DiagLinearOperator,
    KroneckerProductLinearOperator,
    LowRankRootLinearOperator,
    ToeplitzLinearOperator,
)

torch.manual_seed(0)
column = torch.exp(-torch.arange(12.0, dtype=torch.float64) / 3).requires_grad_()
root = torch.randn(12, 3, dtype=torch.float64, requires_grad=True)
diagonal = (torch.rand(12, dtype=torch.float64) + 1).requires_grad_()
small = torch.randn(3, 3, dtype=torch.float64, requires_grad=True)
right = torch.randn(12, 2, dtype=torch.float64)
parameters = [column, root, diagonal, small]
optimizer = torch.optim.Adam(parameters, lr=0.01)
losses = []
for _ in range(3):
    optimizer.zero_grad()
    toeplitz = AddedDiagLinearOperator(ToeplitzLinearOperator(column), DiagLinearOperator(diagonal))
    low_rank = LowRankRootLinearOperator(root).add_diagonal(diagonal)
    positive = to_linear_operator(small @ small.mT).add_jitter(1.0)
    kronecker = KroneckerProductLinearOperator(positive, positive).add_jitter(0.5)
    blocks = BlockDiagLinearOperator(to_linear_operator(positive.to_dense().expand(4, 3, 3)))
    loss = 0
    for operator in (toeplitz, low_rank, blocks):
        quadratic, logdet = operator.inv_quad_logdet(right, logdet=True)
        loss = loss + quadratic + logdet + operator.matmul(right).square().mean() + operator.solve(right).sum()
    loss = loss + kronecker.logdet() + kronecker.to_dense().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

with torch.no_grad():
    dense = toeplitz.to_dense()
    torch.testing.assert_close(toeplitz.solve(right), torch.linalg.solve(dense, right))
    torch.testing.assert_close(low_rank.cholesky().to_dense() @ low_rank.cholesky().to_dense().mT, low_rank.to_dense())
    samples = toeplitz.zero_mean_mvn_samples(2)
    values, _ = kronecker.diagonalization()
numbers = {
    "dense": dense[0].tolist(), "samples": samples.tolist(), "values": values.tolist(),
    "gradients": [p.grad.flatten()[:3].tolist() for p in parameters],
    "preconditioned": low_rank.sqrt_inv_matmul(right)[0].tolist(),
}  # fmt: skip
print(json.dumps({"losses": losses, "numbers": numbers}))
