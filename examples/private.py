import tensorgrad as torch

__doc__ = """Learns handwritten digits with differential privacy: no single image can leave a trace in the network.

    python examples/private.py                    scikit-learn's 1,797 scans of 8 x 8 pixels
    python examples/private.py --data FOLDER      MNIST

The gradient of each image is computed separately, `vmap(grad(loss))`, and scaled down to a length of at most --clip.
Their sum plus normal noise decides the step, so that the step would hardly be another one without any one image. How
much it could tell is counted by epsilon: the probability of any outcome changes by a factor of at most e^epsilon,
except with probability delta = 1e-5. out/private.svg shows both: the error, and the epsilon spent.

Measured after 300 steps: 93.6 % of the held-out scans are read with epsilon = 4.56, under both libraries; 5 s under
tensorgrad and 6 s under torch. Processor time.

M. Abadi et al., Deep Learning with Differential Privacy, CCS 2016. Epsilon by I. Mironov, K. Talwar and L. Zhang, Renyi
Differential Privacy of the Sampled Gaussian Mechanism, 2019.
"""

import math
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from common import Checkpoint, make_parser, progress, run, say, seconds, start
from data import load_images
from picture import save_curves

nn, F = torch.nn, torch.nn.functional
DELTA = 1e-5


def log_sum_exp(values):
    largest = max(values)
    return largest + math.log(sum(math.exp(value - largest) for value in values))


def divergence(order, rate, noise):
    """The Renyi divergence of one step, for an integer order: each image takes part with probability `rate`."""
    terms = []
    for k in range(order + 1):
        choices = math.lgamma(order + 1) - math.lgamma(k + 1) - math.lgamma(order - k + 1)
        terms.append(choices + k * math.log(rate) + (order - k) * math.log1p(-rate) + k * (k - 1) / (2 * noise**2))
    return log_sum_exp(terms) / (order - 1)


def epsilon_after(steps, rate, noise):
    """The privacy spent in so many steps: the least epsilon that any order proves."""
    orders = range(2, 128)
    return min(steps * divergence(order, rate, noise) + math.log(1 / DELTA) / (order - 1) for order in orders)


def private_gradients(each, params, x, y, clip, noise, expected):
    """The noisy mean over `expected` images of gradients that are no longer than `clip`; and the images' mean loss.

    The random numbers are drawn on the CPU, so that they are the same on every device.
    """
    gradients, losses = each(params, x, y)
    lengths = torch.stack([g.flatten(1).square().sum(1) for g in gradients.values()]).sum(0).sqrt()
    scale = (clip / lengths.clamp(min=1e-12)).clamp(max=1.0)
    found = {}
    for name, g in gradients.items():
        total = torch.tensordot(scale, g, 1)
        found[name] = (total + noise * clip * torch.randn(total.shape).to(total.device)) / expected
    return found, losses.mean()


def main():
    parser = make_parser(__doc__, "private", steps=300, batch_size=128, hidden=64)
    parser.add_argument("--lr", type=float, default=1.0, help="learning rate of the first step (%(default)s)")
    parser.add_argument("--clip", type=float, default=0.5, help="the greatest length of a gradient (%(default)s)")
    parser.add_argument(
        "--noise", type=float, default=2.0, help="deviation of the noise, relative to that (%(default)s)"
    )
    parser.add_argument("--truncate_train", type=int, metavar="N", help="train on the first N images only")
    options = start(torch, parser)

    train_x, train_y, test_x, test_y = load_images(options.data)
    train_x, test_x = (torch.from_numpy(x.reshape(len(x), -1)).to(options.device) for x in (train_x, test_x))
    train_y, test_y = torch.from_numpy(train_y).to(options.device), torch.from_numpy(test_y).to(options.device)
    train_x, train_y = train_x[: options.truncate_train], train_y[: options.truncate_train]
    model = nn.Sequential(nn.Linear(train_x.shape[1], options.hidden), nn.Tanh(), nn.Linear(options.hidden, 10))
    model = model.to(options.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9)
    checkpoint = Checkpoint(torch, options, model=model, optimizer=optimizer)

    def loss_of(params, image, label):
        scores = torch.func.functional_call(model, params, (image[None],))
        return F.cross_entropy(scores, label[None])

    each = torch.func.vmap(torch.func.grad_and_value(loss_of), in_dims=(None, 0, 0))
    rate = min(0.999, options.batch_size / len(train_x))
    every = max(1, options.steps // 10)
    for step in progress(options.steps, checkpoint.done):
        optimizer.param_groups[0]["lr"] = options.lr * (1 - step / options.steps)
        chosen = torch.rand(len(train_x)) < rate  # each image by itself: this is what the count of epsilon assumes
        chosen = chosen.to(options.device)
        params = {name: p.detach() for name, p in model.named_parameters()}
        gradients, loss = private_gradients(
            each, params, train_x[chosen], train_y[chosen], options.clip, options.noise, rate * len(train_x)
        )
        for name, p in model.named_parameters():
            p.grad = gradients[name]
        optimizer.step()
        if step < 3:
            say(f"step {step + 1}  loss {loss.item():.6f}")
        if (step + 1) % every == 0:
            with torch.no_grad():
                right = (model(test_x).argmax(1) == test_y).float().mean().item()
            spent = epsilon_after(step + 1, rate, options.noise)
            say(f"step {step + 1}  test {100 * right:.1f}%  epsilon {spent:.2f}  {seconds(options)}")
            checkpoint.save(step + 1, error=1 - right, epsilon=spent)

    save_curves(torch, checkpoint.history, options.out / "private.svg", "Error, and epsilon spent")
    last = {name: values[-1] for name, values in checkpoint.history.items()}
    print(f"test {100 * (1 - last['error']):.1f}% with epsilon = {last['epsilon']:.2f}, delta = {DELTA:g}")
    print(f"picture: {options.out / 'private.svg'}; weights: {checkpoint.file}; {seconds(options)} in all")


if __name__ == "__main__":
    run(main)
