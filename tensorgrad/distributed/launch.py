"""PyTorch's older command: `python -m tensorgrad.distributed.launch`, with the options of `run` and `--use-env`.

Programs get their rank by the argument `--local-rank`, unless `--use-env` is given. Use `run` in new programs.
"""

from __future__ import annotations

import argparse
import os

from tensorgrad.distributed import run

__all__ = ["launch", "main", "parse_args"]


def parse_args(args: list[str] | None) -> argparse.Namespace:
    """Parses a command line; None is that of this process."""
    parser = run.get_args_parser()
    parser.prog = "python -m tensorgrad.distributed.launch"
    parser.add_argument(
        "--use-env", "--use_env", action="store_true", help="the program reads LOCAL_RANK, not --local-rank"
    )
    return parser.parse_args(args)


def launch(args: argparse.Namespace) -> None:
    """Runs the job. Raises: ValueError for `--no-python` without `--use-env`."""
    if args.no_python and not args.use_env:
        raise ValueError("When using the '--no-python' flag, you must also set the '--use-env' flag.")
    os.environ["TENSORGRAD_PASS_LOCAL_RANK"] = "0" if args.use_env else "1"
    run.run(args)


def main(args: list[str] | None = None) -> None:
    """Runs the job of a command line."""
    run.finish(launch, parse_args(args))


if __name__ == "__main__":
    main()
