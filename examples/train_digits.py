import tensorgrad as torch

__doc__ = """Trains a small convolutional network on handwritten digits: on the CPU, in seconds, offline.

    python examples/train_digits.py                     scikit-learn's 1,797 scans of 8 x 8 pixels
    python examples/train_digits.py --data DIR          MNIST from its idx .gz files in DIR (or DATA=DIR)
    python examples/train_digits.py --load digits.npz   evaluate a saved model instead of training

This is what `make train` runs. It saves the weights as a NumPy archive, which can be read without tensorgrad or
PyTorch, and a picture of the losses next to it.
"""

import argparse
import os
import shlex
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
from common import positive, progress, run, say
from data import load_images
from picture import save_curves

nn = torch.nn
IMAGES_TO_SEE = 14_400  # sets the default number of epochs for data sets of any size


def make_network(side):
    """Two blocks of convolution, ReLU and pooling, then a linear layer: from `side` x `side` pixels to ten scores."""
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
    """Returns the mean loss of `model` on `images`, and its accuracy."""
    model.eval()
    loss_sum, correct = 0.0, 0
    with torch.no_grad():
        for start in range(0, len(labels), batch_size):
            scores, answers = model(images[start : start + batch_size]), labels[start : start + batch_size]
            loss_sum += nn.functional.cross_entropy(scores, answers, reduction="sum").item()
            correct += (scores.argmax(dim=1) == answers).sum().item()
    return loss_sum / len(labels), correct / len(labels)


def train(model, train_set, test_set, epochs, batch_size, lr):
    """Trains with AdamW, with a learning rate that falls linearly to zero. Returns the losses of each epoch."""
    data = torch.utils.data.TensorDataset(*train_set)
    loader = torch.utils.data.DataLoader(data, batch_size=batch_size, shuffle=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    loss_fn = nn.CrossEntropyLoss()
    step, steps = 0, epochs * len(loader)
    history = {"done": [], "train": [], "test": []}
    for epoch in progress(epochs, unit="epoch"):
        model.train()
        total = 0.0
        for images, labels in loader:
            for group in optimizer.param_groups:
                group["lr"] = lr * (1 - step / steps)
            optimizer.zero_grad()
            loss = loss_fn(model(images), labels)
            loss.backward()
            optimizer.step()
            if step == 0:
                say(f"first loss {loss.item():.6f}")
            step += 1
            total += loss.item() * len(labels)
        held_out, accuracy = evaluate(model, *test_set)
        mean = total / len(train_set[1])
        for name, value in {"done": epoch + 1, "train": mean, "test": held_out}.items():
            history[name].append(value)
        say(f"epoch {epoch + 1:2d}/{epochs}  loss {mean:.4f}  held-out accuracy {accuracy:.2%}")
    return history


def save(model, file):
    """Writes the parameters to a NumPy archive, under their names in the state dict."""
    with open(file, "wb") as stream:
        np.savez(stream, **{name: value.cpu().numpy() for name, value in model.state_dict().items()})


def load(model, file):
    """Reads what `save` wrote. Raises: ValueError if the file does not contain a model of this shape."""
    try:
        with np.load(file) as archive:
            model.load_state_dict({name: torch.from_numpy(archive[name]) for name in archive.files})
    except FileNotFoundError:
        raise ValueError(f"{file} is missing") from None
    except Exception as error:  # a damaged archive can raise many kinds of exceptions
        raise ValueError(f"{file} does not hold this network: {' '.join(str(error).split())}") from None


def parse_arguments():
    """Parses the command line; the folder of MNIST's files may also come from the environment variable DATA."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", metavar="DIR", default=os.environ.get("DATA"), help="folder of MNIST's idx .gz files")
    parser.add_argument("--load", metavar="FILE", help="evaluate this saved model instead of training one")
    parser.add_argument("--save", metavar="FILE", default="digits.npz", help="where to save the model (%(default)s)")
    parser.add_argument("--epochs", type=positive, help=f"default: as many as make {IMAGES_TO_SEE:,} images")
    parser.add_argument("--batch-size", type=positive, default=32, help="images per step (%(default)s)")
    parser.add_argument("--lr", type=float, default=5e-3, help="learning rate of the first step (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the weights and the order of images (%(default)s)")
    parser.add_argument("--device", default="cpu", help="where to train (%(default)s)")
    return parser.parse_args()


def main():
    options = parse_arguments()
    if not Path(options.save).resolve().parent.is_dir():
        raise ValueError(f"--save {options.save}: there is no such folder")  # before training, not after
    torch.manual_seed(options.seed)
    train_x, train_y, test_x, test_y = (torch.from_numpy(a).to(options.device) for a in load_images(options.data))
    side = train_x.shape[-1]
    model = make_network(side).to(options.device)
    if options.load:
        load(model, options.load)
        print(f"{options.load}: held-out accuracy {evaluate(model, test_x, test_y)[1]:.2%} of {len(test_y)} digits")
        return

    parameters = sum(p.numel() for p in model.parameters())
    print(f"{len(train_y):,} digits of {side} x {side} pixels, {len(test_y):,} held out, {parameters:,} parameters")
    began = time.perf_counter()
    epochs = options.epochs or max(1, round(IMAGES_TO_SEE / len(train_y)))
    history = train(model, (train_x, train_y), (test_x, test_y), epochs, options.batch_size, options.lr)
    seconds = time.perf_counter() - began
    print(f"held-out accuracy {evaluate(model, test_x, test_y)[1]:.2%} after {seconds:.1f} s")

    save(model, options.save)
    picture = Path(options.save).with_suffix(".svg")
    save_curves(torch, history, picture, "Cross entropy", "epoch")
    data = ["--data", options.data] if options.data else []
    again = shlex.join([sys.executable, sys.argv[0], *data, "--load", options.save])
    print(f"picture: {picture}")
    print(f"saved to {options.save}; load and evaluate it again with\n    {again}\nor, in your own program, with")
    print(f"    archive = numpy.load({options.save!r})")
    print(f"    model.load_state_dict({{name: {torch.__name__}.from_numpy(archive[name]) for name in archive.files}})")


if __name__ == "__main__":
    run(main)
