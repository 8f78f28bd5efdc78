"""Shared by the examples: options, progress, checkpoints, and several processes.

This file imports neither tensorgrad nor torch. Functions that need the library take it as an argument, so that an
example runs under the other one when only its own first line is changed.
"""

import argparse
import os
import socket
import sys
import time
from pathlib import Path

try:
    from tqdm import tqdm
except ImportError:  # then progress is plain lines
    tqdm = None

SECONDS_BETWEEN_LINES = 10


def positive(text):
    """An argparse type: an integer of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected an integer of at least 1, got {text!r}")
    return int(text)


def make_parser(description, name, **defaults):
    """Returns a parser with the options that all examples have, and one integer option for each of `defaults`."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="seed of all random numbers (%(default)s)")
    parser.add_argument("--device", default="cpu", help="device to compute on (%(default)s)")
    parser.add_argument("--data", metavar="FOLDER", default=os.environ.get("DATA"), help="folder from download.py")
    parser.add_argument("--out", metavar="FOLDER", type=Path, default=Path("out"), help="for results (%(default)s)")
    parser.add_argument("--resume", action="store_true", help=f"continue from the checkpoint {name}.pt in that folder")
    parser.set_defaults(name=name)
    for option, default in defaults.items():
        parser.add_argument(f"--{option}", type=positive, default=default, metavar="N", help="(%(default)s)")
    return parser


def start(torch, parser):
    """Parses the command line, creates the folder for results and seeds the random number generator."""
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(options.seed)
    options.began = time.perf_counter()
    return options


def seconds(options):
    """The time since the start, formatted."""
    return f"{time.perf_counter() - options.began:.1f} s"


def progress(total, done=0, unit="step"):
    """Yields `done` to `total` - 1 and shows a progress bar, or without tqdm prints a line every few seconds."""
    if tqdm is not None:
        # disable=None: no bar if the output is not a terminal
        yield from tqdm(range(done, total), initial=done, total=total, unit=unit, dynamic_ncols=True, disable=None)
        return
    last = time.perf_counter()
    for i in range(done, total):
        yield i
        if time.perf_counter() - last > SECONDS_BETWEEN_LINES:
            last = time.perf_counter()
            print(f"{unit} {i + 1} of {total}", file=sys.stderr, flush=True)


def say(line):
    """Prints a line, above the progress bar if there is one."""
    if tqdm is not None:
        tqdm.write(line, file=sys.stdout)
        sys.stdout.flush()
    else:
        print(line, flush=True)


class Checkpoint:
    """The state of a training run in one file: weights, optimizers, random numbers and the history of losses.

    `parts` are objects with a ``state_dict``. With ``--resume`` they are loaded, and an interrupted run continues as if
    it had not been interrupted: `done` is the number of rounds completed.
    """

    def __init__(self, torch, options, **parts):
        self.torch, self.parts = torch, parts
        self.file = options.out / f"{options.name}.pt"
        self.done, self.history = 0, {}
        if options.resume:
            if not self.file.exists():
                raise ValueError(f"--resume: there is no {self.file}")
            self.read(options.device)

    def read(self, device):
        state = self.torch.load(self.file, map_location=device)
        for name, part in self.parts.items():
            part.load_state_dict(state[name])
        self.torch.set_rng_state(state["random"].cpu())
        self.done, self.history = state["done"], state["history"]

    def save(self, done, **values):
        """Writes the file after `done` rounds, and appends `values` and `done` to the history."""
        self.done = done
        for name, value in {"done": done, **values}.items():
            self.history.setdefault(name, []).append(value)
        state = {name: part.state_dict() for name, part in self.parts.items()}
        state |= {"random": self.torch.get_rng_state(), "done": done, "history": self.history}
        self.torch.save(state, self.file)


def start_ranks(torch, ranks, work, *arguments):
    """Calls `work(*arguments)` in several processes: in this one, if a launcher has started it as one of them."""
    if "RANK" in os.environ:
        work(*arguments)
        return
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]  # a free one, where the ranks will meet
    torch.multiprocessing.spawn(start_rank, (ranks, port, work, arguments), nprocs=ranks)


def start_rank(rank, ranks, port, work, arguments):
    """Says which rank this process is, in the variables that a launcher would have set, and calls `work`."""
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": ranks, "RANK": rank}
    os.environ.update({name: str(value) for name, value in where.items()})
    work(*arguments)


def run(main):
    """Calls `main`; errors that the user can fix (a missing file, a wrong option) are printed as one line."""
    try:
        main()
    except (ValueError, OSError) as error:
        sys.exit(f"{sys.argv[0]}: {error}")
    except KeyboardInterrupt:
        sys.exit(f"{sys.argv[0]}: stopped")
