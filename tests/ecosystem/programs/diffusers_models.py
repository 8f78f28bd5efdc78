"""diffusers: a tiny UNet learns to remove noise, and draws with DDPM and DDIM; a conditional UNet and an autoencoder."""

import json
import os
import sys
import tempfile

import diffusers
import torch
from torch import nn

diffusers.utils.logging.set_verbosity_error()
UNET = dict(
    sample_size=8, in_channels=1, out_channels=1, layers_per_block=1, block_out_channels=(8, 16), norm_num_groups=4,
    down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    attention_head_dim=4,
)  # fmt: skip
CONDITIONAL = dict(
    sample_size=8, in_channels=4, out_channels=4, layers_per_block=1, block_out_channels=(8, 16), norm_num_groups=4,
    down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
    cross_attention_dim=12, attention_head_dim=2,
)  # fmt: skip
AUTOENCODER = dict(
    in_channels=3, out_channels=3, latent_channels=4, layers_per_block=1, block_out_channels=(8, 16), norm_num_groups=4,
    down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2,
)  # fmt: skip

folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
losses, numbers = [], {}


def three_steps(model, loss_of):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, eps=1e-4)
    for _ in range(3):
        optimizer.zero_grad()
        loss = loss_of(model)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return model.eval()


def saved_and_loaded(name, model):
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        model.save_pretrained(path)
    return type(model).from_pretrained(path).eval()


torch.manual_seed(0)
noise_scheduler = diffusers.DDPMScheduler(num_train_timesteps=50)
images = torch.randn(4, 1, 8, 8)


def noise_loss(model):
    noise, steps = torch.randn_like(images), torch.randint(0, 50, (4,))
    return nn.functional.mse_loss(model(noise_scheduler.add_noise(images, noise, steps), steps).sample, noise)


unet = saved_and_loaded("unet", three_steps(diffusers.UNet2DModel(**UNET), noise_loss))
for kind in ("DDPM", "DDIM"):
    scheduler = getattr(diffusers, f"{kind}Scheduler").from_config(noise_scheduler.config)
    pipeline = getattr(diffusers, f"{kind}Pipeline")(unet=unet, scheduler=scheduler)
    pipeline.set_progress_bar_config(disable=True)
    drawn = pipeline(batch_size=1, generator=torch.Generator().manual_seed(0), num_inference_steps=4, output_type="np")
    numbers[kind] = drawn.images[0, :3, :3, 0].flatten().tolist()
for kind in ("EulerDiscrete", "EulerAncestralDiscrete", "DPMSolverMultistep", "PNDM", "UniPCMultistep", "LCM"):
    scheduler = getattr(diffusers, f"{kind}Scheduler")(num_train_timesteps=50)
    scheduler.set_timesteps(4)
    generator = torch.Generator().manual_seed(0)
    sample = images[:1] * scheduler.init_noise_sigma
    takes = {"generator": generator} if kind in ("EulerAncestralDiscrete", "LCM") else {}
    for step in scheduler.timesteps:
        with torch.no_grad():
            predicted = unet(scheduler.scale_model_input(sample, step), step).sample
        sample = scheduler.step(predicted, step, sample, **takes).prev_sample
    numbers[kind] = [*sample[0, 0, 0, :4].tolist(), sample.norm().item()]

torch.manual_seed(1)
latents, texts, times = torch.randn(2, 4, 8, 8), torch.randn(2, 5, 12), torch.tensor([3, 30])
conditional = three_steps(
    diffusers.UNet2DConditionModel(**CONDITIONAL),
    lambda m: m(latents, times, encoder_hidden_states=texts).sample.pow(2).mean(),
)
with torch.no_grad():
    output = saved_and_loaded("conditional", conditional)(latents, times, encoder_hidden_states=texts).sample
numbers["conditional"] = [*output[0, 0, 0, :4].tolist(), output.norm().item()]

torch.manual_seed(2)
pictures = torch.randn(2, 3, 16, 16)


def reconstruction(model):
    return nn.functional.mse_loss(model(pictures, sample_posterior=True).sample, pictures)


autoencoder = saved_and_loaded("autoencoder", three_steps(diffusers.AutoencoderKL(**AUTOENCODER), reconstruction))
with torch.no_grad():
    decoded = autoencoder.decode(autoencoder.encode(pictures).latent_dist.mode()).sample
numbers["autoencoder"] = [*decoded[0, 0, 0, :4].tolist(), decoded.norm().item()]

ema = diffusers.training_utils.EMAModel(unet.parameters(), decay=0.9)
ema.step(unet.parameters())
print(json.dumps({"losses": losses, "numbers": numbers}))
