"""The example program for the DEBUG levels."""

import tensorgrad as torch

x = torch.ones(2, 3, requires_grad=True)
for _ in range(2):
    loss = (x * 2).exp().sum()
    loss.backward()
