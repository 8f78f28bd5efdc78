"""Train a small convolutional network on handwritten digits, on the CPU in seconds and without a network connection.

Usage:
    python examples/train_digits.py                     scikit-learn's 1,797 scans of 8 x 8 pixels
    python examples/train_digits.py --data DIR          MNIST from its idx .gz files in DIR (or DATA=DIR)
    python examples/train_digits.py --load digits.npz   evaluate a saved model, train nothing
"""

import argparse
import os
import shlex
import sys
import time
from pathlib import Path

import numpy as np
from data import load_digits, load_mnist

import tensorgrad as torch
from tensorgrad import nn
from tensorgrad.utils.data import DataLoader, TensorDataset

IMAGES_TO_SEE = 36_000  # what the default number of epochs adds up to, whatever the size of the data set


def make_network(side):
    """Two rounds of convolution, ReLU and pooling, then one linear layer: `side` x `side` pixels to ten scores."""
    return nn.Sequential(
        nn.Conv2d(1, 16, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * (side // 4) ** 2, 10),
    )


def evaluate(model, images, labels, batch_size=500):
    """The share of `images` that `model` reads correctly."""
    model.eval()
    correct = 0
    with torch.no_grad():
        for start in range(0, len(labels), batch_size):
            scores = model(images[start : start + batch_size])
            correct += (scores.argmax(dim=1) == labels[start : start + batch_size]).sum().item()
    return correct / len(labels)


def train(model, train_set, test_set, epochs, batch_size, lr):
    """Train with AdamW, its rate falling linearly to zero; returns the accuracy on `test_set` after the last epoch."""
    try:
        from tqdm import tqdm
    except ImportError:
        raise ValueError('the progress bar needs tqdm: pip install -e ".[examples]"') from None
    loader = DataLoader(TensorDataset(*train_set), batch_size=batch_size, shuffle=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    loss_fn = nn.CrossEntropyLoss()
    accuracy, step, steps = evaluate(model, *test_set), 0, epochs * len(loader)
    with tqdm(total=epochs * len(train_set[1]), unit=" samples", unit_scale=True) as bar:
        for epoch in range(1, epochs + 1):
            model.train()
            total = 0.0
            for images, labels in loader:
                for group in optimizer.param_groups:
                    group["lr"] = lr * (1 - step / steps)
                optimizer.zero_grad()
                loss = loss_fn(model(images), labels)
                loss.backward()
                optimizer.step()
                step += 1
                value = loss.item()
                total += value * len(labels)
                bar.set_postfix(loss=f"{value:.4f}", refresh=False)
                bar.update(len(labels))
            accuracy = evaluate(model, *test_set)
            mean = total / len(train_set[1])
            bar.write(f"epoch {epoch:2d}/{epochs}  loss {mean:.4f}  held-out accuracy {accuracy:.2%}", file=sys.stdout)
    return accuracy


def save(model, file):
    """Write the parameters, each under its name in the state dict, into a NumPy archive."""
    with open(file, "wb") as stream:
        np.savez(stream, **{name: value.cpu().numpy() for name, value in model.state_dict().items()})


def load(model, file):
    """Read what `save` wrote; raises ValueError when the file is not a model of this shape."""
    try:
        with np.load(file) as archive:
            model.load_state_dict({name: torch.from_numpy(archive[name]) for name in archive.files})
    except FileNotFoundError:
        raise ValueError(f"{file} is missing") from None
    except Exception as error:  # a damaged archive shows as one of many exceptions
        raise ValueError(f"{file} does not hold this network: {' '.join(str(error).split())}") from None


def positive(text):
    """An argparse type: a whole number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, got {text!r}")
    return int(text)


def parse_arguments():
    """The options on the command line; the folder of MNIST's files may also come from the environment, as DATA."""
    parser = argparse.ArgumentParser(description="Train a small convolutional network on handwritten digits.")
    parser.add_argument("--data", metavar="DIR", default=os.environ.get("DATA"), help="folder of MNIST's idx .gz files")
    parser.add_argument("--load", metavar="FILE", help="evaluate this saved model instead of training one")
    parser.add_argument("--save", metavar="FILE", default="digits.npz", help="where the model goes (%(default)s)")
    parser.add_argument("--epochs", type=positive, help=f"default: enough to see {IMAGES_TO_SEE:,} images")
    parser.add_argument("--batch-size", type=positive, default=32, help="images per step (%(default)s)")
    parser.add_argument("--lr", type=float, default=3e-3, help="learning rate of the first step (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the weights and the order of images (%(default)s)")
    parser.add_argument("--device", default="cpu", help="where to train (%(default)s)")
    return parser.parse_args()


def main():
    options = parse_arguments()
    if not Path(options.save).resolve().parent.is_dir():
        raise ValueError(f"--save {options.save}: there is no such folder")  # said before the training, not after
    torch.manual_seed(options.seed)
    arrays = load_mnist(options.data) if options.data else load_digits()
    train_x, train_y, test_x, test_y = (torch.from_numpy(array).to(options.device) for array in arrays)
    side = train_x.shape[-1]
    model = make_network(side).to(options.device)
    if options.load:
        load(model, options.load)
        print(f"{options.load}: held-out accuracy {evaluate(model, test_x, test_y):.2%} of {len(test_y)} digits")
        return

    parameters = sum(p.numel() for p in model.parameters())
    print(f"{len(train_y):,} digits of {side} x {side} pixels, {len(test_y):,} held out, {parameters:,} parameters")
    start = time.perf_counter()
    epochs = options.epochs or max(1, round(IMAGES_TO_SEE / len(train_y)))
    accuracy = train(model, (train_x, train_y), (test_x, test_y), epochs, options.batch_size, options.lr)
    print(f"held-out accuracy {accuracy:.2%} after {time.perf_counter() - start:.1f} s")

    save(model, options.save)
    data = ["--data", options.data] if options.data else []
    again = shlex.join([sys.executable, sys.argv[0], *data, "--load", options.save])
    print(f"saved to {options.save}; load and evaluate it again with\n    {again}\nor, in a program of your own, with")
    print(f"    archive = numpy.load({options.save!r})")
    print("    model.load_state_dict({name: tensorgrad.from_numpy(archive[name]) for name in archive.files})")


if __name__ == "__main__":
    try:
        main()
    except (ValueError, OSError) as error:
        sys.exit(f"{sys.argv[0]}: {error}")
