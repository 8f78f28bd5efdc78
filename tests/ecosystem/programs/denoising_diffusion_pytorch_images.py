"""denoising_diffusion_pytorch: diffusion of images and signals, its networks and ways of sampling."""

import json
import random
import sys
import tempfile

import denoising_diffusion_pytorch as ddp
import torch
from shared.training import saved_and_loaded, some, three_steps

images = torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(1))
signals = torch.rand(2, 4, 32, generator=torch.Generator().manual_seed(2))


def unet(**more):
    return ddp.Unet(dim=8, dim_mults=(1, 2), channels=3, flash_attn=False, attn_heads=2, attn_dim_head=8, **more)


WAYS = {
    "noise": lambda: ddp.GaussianDiffusion(unet(), image_size=16, timesteps=20, sampling_timesteps=4, objective="pred_noise"),
    "v": lambda: ddp.GaussianDiffusion(
        unet(self_condition=True), image_size=16, timesteps=10, objective="pred_v", beta_schedule="cosine",
        min_snr_loss_weight=True, offset_noise_strength=0.1,
    ),
    "learned": lambda: ddp.LearnedGaussianDiffusion(unet(learned_variance=True), image_size=16, timesteps=8),
    "continuous": lambda: ddp.ContinuousTimeGaussianDiffusion(
        unet(random_fourier_features=True), image_size=16, num_sample_steps=4
    ),
    "elucidated": lambda: ddp.ElucidatedDiffusion(
        unet(learned_sinusoidal_cond=True), image_size=16, channels=3, num_sample_steps=4
    ),
    "signals": lambda: ddp.GaussianDiffusion1D(
        ddp.Unet1D(dim=8, dim_mults=(1, 2), channels=4), seq_length=32, timesteps=8, objective="pred_v"
    ),
}  # fmt: skip
folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
losses, numbers = [], {}
for name, made in WAYS.items():
    torch.manual_seed(0)
    diffusion = made()
    data = signals if name == "signals" else images
    optimizer = torch.optim.Adam(diffusion.parameters(), 1e-3, eps=1e-4)
    torch.manual_seed(3)
    random.seed(3)
    losses += three_steps(optimizer, lambda: diffusion(data))
    again = saved_and_loaded(diffusion, made(), folder, f"{name}.pt")
    torch.manual_seed(4)
    numbers[name] = some(again.sample(batch_size=2))
print(json.dumps({"losses": losses, "numbers": numbers}))
