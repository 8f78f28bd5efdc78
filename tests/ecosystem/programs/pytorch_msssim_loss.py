"""pytorch-msssim: a network learns to restore images by their structural similarity."""

import json

import torch
from pytorch_msssim import MS_SSIM, SSIM, ms_ssim, ssim
from shared.training import some, three_steps
from torch import nn

torch.manual_seed(0)
target = torch.rand(2, 3, 176, 176)
noisy = (target + 0.2 * torch.randn_like(target)).clamp(0, 1)
model = nn.Conv2d(3, 3, 5, padding=2)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
losses = []
for measure in (SSIM(data_range=1.0), MS_SSIM(data_range=1.0)):
    losses += three_steps(optimizer, lambda measure=measure: 1 - measure(model(noisy).sigmoid(), target))
numbers = {
    "weight": some(model.weight), "ssim": ssim(noisy, target, data_range=1.0, size_average=False).tolist(),
    "ms_ssim": ms_ssim(noisy, target, data_range=1.0, size_average=False).tolist(),
}  # fmt: skip
print(json.dumps({"losses": losses, "numbers": numbers}))
