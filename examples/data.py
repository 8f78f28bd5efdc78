"""The examples' data: handwritten digits as NumPy arrays, and texts.

Each data set has a small version that needs no network: the scans that come with scikit-learn, and the names and
docstrings of Python's standard library. A folder filled by ``python examples/download.py`` has the larger one: MNIST,
Shakespeare, and 32,033 first names.

The loaders of digits return ``(train_images, train_labels, test_images, test_labels)``: images are float32 of shape
(count, 1, height, width) between 0 (paper) and 1 (ink), labels are int64 from 0 to 9. The split does not depend on a
random seed, so a saved model is always evaluated on digits that it has not seen.
"""

import gzip
import importlib
import inspect
import math
import re
import sys
import zlib
from pathlib import Path

import numpy as np

UNSIGNED_BYTE = 0x08  # the idx format's code for the element type of MNIST
LIBRARY = (
    "argparse", "builtins", "calendar", "collections", "csv", "datetime", "decimal", "difflib", "email.utils",
    "fractions", "functools", "heapq", "inspect", "itertools", "json", "logging", "math", "operator", "os", "pathlib",
    "random", "shutil", "socket", "statistics", "string", "subprocess", "tempfile", "textwrap", "threading", "time",
    "urllib.parse", "zipfile",
)  # fmt: skip


def load_images(folder):
    """Loads MNIST if `folder` is given, otherwise scikit-learn's digits."""
    return load_mnist(folder) if folder else load_digits()


def load_text(folder):
    """Loads a million characters of Shakespeare from `folder`, or 40,000 from the docstrings of Python's library."""
    return read_text(folder, "tinyshakespeare.txt") if folder else "\n\n".join(library()[1])[:40_000]


def load_names(folder):
    """Loads a list of names in lower case: 32,033 first names from `folder`, or names from Python's library."""
    return read_text(folder, "names.txt").split() if folder else library()[0]


def library():
    """Returns the names in some modules of Python's library, and their docstrings, which are always English."""
    names, texts = set(sys.stdlib_module_names), []
    for module in map(importlib.import_module, LIBRARY):
        things = [(name, thing) for name, thing in sorted(vars(module).items()) if not name.startswith("_")]
        names.update(name for name, _ in things)
        texts += [thing.__doc__ for _, thing in things if callable(thing) and getattr(thing, "__doc__", None)]
    return (
        sorted(name for name in names if re.fullmatch("[a-z]{3,12}", name)),
        [inspect.cleandoc(text) for text in dict.fromkeys(texts) if text.isascii()],
    )


def read_text(folder, name):
    """Returns the text of the file `name` in `folder`. Raises: ValueError if it is missing."""
    file = Path(folder) / name
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ValueError(f"{file} is missing") from None


def load_digits():
    """Loads the 1,797 scans of 8 x 8 pixels that come with scikit-learn: 1,437 to train on, 360 held out."""
    try:
        from sklearn.datasets import load_digits as embedded
    except ImportError:
        raise ValueError('the default digits need scikit-learn: pip install -e ".[examples]"') from None
    scans = embedded()
    # The scans are sorted by writer; shuffle them, so that both parts contain every handwriting.
    order = np.random.default_rng(0).permutation(len(scans.target))
    images = (scans.images[order, None] / 16).astype(np.float32)
    labels = scans.target[order].astype(np.int64)
    return images[:1437], labels[:1437], images[1437:], labels[1437:]


def load_mnist(folder):
    """Loads MNIST from its four idx .gz files in `folder`, or splits the two t10k ones into 9,000 and 1,000 digits.

    Raises: ValueError, with the name of the file, if a file is missing or damaged, or does not match its pair.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder")
    test_images, test_labels = load_pair(folder, "t10k")
    if any(folder.glob("train-*-ubyte.gz")):
        return *load_pair(folder, "train"), test_images, test_labels
    if len(test_labels) != 10_000:
        raise ValueError(f"{folder}: expected 10,000 t10k digits to split into 9,000 and 1,000, got {len(test_labels)}")
    return test_images[:9000], test_labels[:9000], test_images[9000:], test_labels[9000:]


def load_pair(folder, part):
    """Loads images and labels of one part ("train" or "t10k") of MNIST, and checks that they match."""
    images_file, labels_file = folder / f"{part}-images-idx3-ubyte.gz", folder / f"{part}-labels-idx1-ubyte.gz"
    images, labels = read_idx(images_file, dimensions=3), read_idx(labels_file, dimensions=1)
    if len(images) != len(labels):
        raise ValueError(f"{images_file} has {len(images)} images, but {labels_file} has {len(labels)} labels")
    if images.shape[1:] != (28, 28):
        raise ValueError(f"{images_file}: expected images of 28 x 28 pixels, got {images.shape[1]} x {images.shape[2]}")
    if labels.size and labels.max() > 9:
        raise ValueError(f"{labels_file}: expected labels from 0 to 9, got {labels.max()}")
    return images[:, None].astype(np.float32) / 255, labels.astype(np.int64)


def read_idx(file, dimensions):
    """Reads a gzipped idx file: two zero bytes, type, rank, each size as a big-endian int32, then the elements."""
    try:
        content = gzip.decompress(Path(file).read_bytes())
    except FileNotFoundError:
        raise ValueError(f"{file} is missing") from None
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{file} cannot be read: {error}") from None
    header = 4 + 4 * dimensions
    if len(content) < header or content[:4] != bytes([0, 0, UNSIGNED_BYTE, dimensions]):
        raise ValueError(f"{file} is not an idx file of {dimensions}-dimensional bytes: it begins with {content[:4]!r}")
    shape = tuple(int(size) for size in np.frombuffer(content, ">i4", dimensions, offset=4))
    if min(shape) < 0 or math.prod(shape) != len(content) - header:
        raise ValueError(f"{file} should have {shape} bytes, but has {len(content) - header}")
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)
