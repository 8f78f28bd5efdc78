"""Download and check the data for the examples: MNIST (11 MB), a Shakespeare text, a list of first names.

    python examples/download.py data          then: python examples/mnist/cnn.py --data data
                                              or, for all examples run from this shell: export DATA=data

Files that already exist are only checked. Each file comes from the first mirror that has it, and is kept only if its
SHA-256 sum is the one below. The examples read MNIST's four .gz files directly: do not unpack them.
"""

import argparse
import hashlib
import sys
import urllib.request
from pathlib import Path

MNIST = ("https://storage.googleapis.com/cvdf-datasets/mnist/", "https://ossci-datasets.s3.amazonaws.com/mnist/")
SHAKESPEARE = ("https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",)
NAMES = ("https://raw.githubusercontent.com/karpathy/makemore/master/names.txt",)

FILES = {  # name: (SHA-256, mirrors; a mirror that ends in a slash is a folder)
    "train-images-idx3-ubyte.gz": ("440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609", MNIST),
    "train-labels-idx1-ubyte.gz": ("3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c", MNIST),
    "t10k-images-idx3-ubyte.gz": ("8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6", MNIST),
    "t10k-labels-idx1-ubyte.gz": ("f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6", MNIST),
    "tinyshakespeare.txt": ("86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed", SHAKESPEARE),
    "names.txt": ("0a30b5557f192f32ab962680889aac5f6fda0f4cecf40a6d0b5694f58ea8cc4d", NAMES),
}


def is_genuine(content, expected):
    return hashlib.sha256(content).hexdigest() == expected


def fetch(name, expected, mirrors, timeout=30):
    """Returns the content of a file, from the first mirror that has it unaltered. Raises: OSError if none has."""
    failures = []
    for mirror in mirrors:
        address = mirror + name if mirror.endswith("/") else mirror
        try:
            with urllib.request.urlopen(address, timeout=timeout) as answer:
                content = answer.read()
        except OSError as error:
            failures.append(f"{address}: {error}")
            continue
        if is_genuine(content, expected):
            return content
        failures.append(f"{address}: {len(content):,} bytes whose SHA-256 sum is not {expected}")
    raise OSError("; ".join(failures))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder for the files")
    parser.add_argument("--only", metavar="NAME", nargs="+", choices=FILES, default=list(FILES), help="only these")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    failed = False
    for name in options.only:
        expected, mirrors = FILES[name]
        file = options.folder / name
        try:
            if not file.exists():
                partial = file.with_name(name + ".part")  # an incomplete download is never mistaken for the file
                partial.write_bytes(fetch(name, expected, mirrors))
                partial.replace(file)
            genuine = is_genuine(file.read_bytes(), expected)
            print(f"{file}: " + ("as published" if genuine else "NOT as published (delete it to fetch it again)"))
            failed |= not genuine
        except OSError as error:
            print(f"{file}: cannot be fetched: {error}")
            failed = True
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
