import tensorgrad as torch

__doc__ = """A GAN: one network generates digits, another learns to tell generated digits from real ones.

    python examples/gan.py                        scikit-learn's 1,797 scans of 8 x 8 pixels
    python examples/gan.py --data FOLDER          MNIST

Measured on the scans: most of a hundred generated digits are readable after 3,000 steps, in 22 s under tensorgrad and
25 s under torch. Processor time; README.md describes the machine.

I. Goodfellow et al., Generative Adversarial Nets, 2014. The picture is drawn with averaged weights of the generator:
Y. Yazici et al., The Unusual Effectiveness of Averaging in GAN Training, ICLR 2019.
"""

import copy
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from common import Checkpoint, make_parser, progress, run, say, seconds, start
from data import load_images
from picture import save_curves, save_grid

nn, F = torch.nn, torch.nn.functional
NOISE = 32  # random numbers per generated digit


def make_generator(pixels, hidden):
    """From random numbers to pixels between -1 and 1."""
    return nn.Sequential(
        nn.Linear(NOISE, hidden), nn.BatchNorm1d(hidden), nn.ReLU(),
        nn.Linear(hidden, hidden), nn.BatchNorm1d(hidden), nn.ReLU(),
        nn.Linear(hidden, pixels), nn.Tanh(),
    )  # fmt: skip


def make_discriminator(pixels, hidden):
    """From pixels to one score, positive if they look real. Dropout prevents it from memorizing the real digits."""
    return nn.Sequential(
        nn.Linear(pixels, hidden), nn.LeakyReLU(0.2), nn.Dropout(0.3),
        nn.Linear(hidden, hidden), nn.LeakyReLU(0.2), nn.Dropout(0.3),
        nn.Linear(hidden, 1),
    )  # fmt: skip


def discriminator_step(generator, discriminator, optimizer, real):
    """One step towards telling real from generated digits; no gradients reach the generator."""
    with torch.no_grad():
        fake = generator(torch.randn(len(real), NOISE).to(real.device))
    scores = discriminator(torch.cat([real, fake])).squeeze(1)
    targets = torch.cat([torch.full((len(real),), 0.9), torch.zeros(len(fake))]).to(real.device)  # label smoothing
    loss = F.binary_cross_entropy_with_logits(scores, targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def generator_step(generator, discriminator, optimizer, count, device):
    """One step towards digits that the discriminator takes for real."""
    scores = discriminator(generator(torch.randn(count, NOISE).to(device))).squeeze(1)
    loss = F.binary_cross_entropy_with_logits(scores, torch.ones(count, device=device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


@torch.no_grad()
def follow(average, model, share=0.01):
    """Moves the averaged weights a little towards the current ones, and copies buffers (running statistics)."""
    for mean, value in zip(average.parameters(), model.parameters(), strict=True):
        mean.lerp_(value, share)
    for mean, value in zip(average.buffers(), model.buffers(), strict=True):
        mean.copy_(value)


def main():
    parser = make_parser(__doc__, "gan", steps=3000, batch_size=64, hidden=256)
    parser.add_argument("--lr", type=float, default=5e-4, help="learning rate (%(default)s)")
    options = start(torch, parser)

    images = load_images(options.data)[0]
    side = images.shape[-1]
    images = (2 * torch.from_numpy(images).flatten(1) - 1).to(options.device)
    generator = make_generator(side * side, options.hidden).to(options.device)
    discriminator = make_discriminator(side * side, options.hidden).to(options.device)
    average = copy.deepcopy(generator)
    opt_g, opt_d = (
        torch.optim.Adam(m.parameters(), lr=options.lr, betas=(0.5, 0.99)) for m in (generator, discriminator)
    )
    checkpoint = Checkpoint(
        torch, options, generator=generator, discriminator=discriminator, average=average, opt_g=opt_g, opt_d=opt_d
    )
    fixed_noise = torch.randn(100, NOISE).to(options.device)

    every = max(1, options.steps // 10)
    for step in progress(options.steps, checkpoint.done):
        real = images[torch.randint(len(images), (options.batch_size,)).to(options.device)]
        loss_d = discriminator_step(generator, discriminator, opt_d, real)
        loss_g = generator_step(generator, discriminator, opt_g, options.batch_size, options.device)
        follow(average, generator)
        if step < 3:
            say(f"step {step + 1}  discriminator {loss_d:.6f}  loss {loss_g:.6f}")
        if (step + 1) % every == 0:
            say(f"step {step + 1}  discriminator {loss_d:.4f}  generator {loss_g:.4f}  {seconds(options)}")
            checkpoint.save(step + 1, discriminator=loss_d, generator=loss_g)

    average.eval()
    with torch.no_grad():
        drawings = (average(fixed_noise) + 1).view(-1, side, side) / 2
    save_grid(drawings.cpu().numpy(), options.out / "gan_digits.png", columns=20)
    save_curves(torch, checkpoint.history, options.out / "gan.svg", "Losses of the two networks")
    print(
        f"pictures: {options.out / 'gan_digits.png'}, {options.out / 'gan.svg'}; weights: {checkpoint.file}; "
        f"{seconds(options)} in all"
    )


if __name__ == "__main__":
    run(main)
