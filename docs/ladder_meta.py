"""A loss on the meta device, which has no kernels, only shapes."""

import tensorgrad as torch

x = torch.empty(2, 3, device="meta")
torch.nn.functional.mse_loss(x, x)
