"""Starts a program in several processes, like PyTorch's `torchrun`.

    python -m tensorgrad.distributed.run --standalone --nproc-per-node 4 train.py --epochs 3

In the program, `import torch` loads tensorgrad. Every option can also be given by an environment variable, such as
PET_NPROC_PER_NODE. See docs/distributed.md in the repository.
"""

from __future__ import annotations

import argparse
import os
import sys
import uuid
from typing import Any

from tensorgrad.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException, Std
from tensorgrad.distributed.elastic.multiprocessing.errors import ChildFailedError, record
from tensorgrad.distributed.elastic.rendezvous import RendezvousError
from tensorgrad.distributed.launcher.api import LaunchConfig, elastic_launch
from tensorgrad.system import processes
from tensorgrad.system.processors import processors

__all__ = ["config_from_args", "determine_local_world_size", "finish", "get_args_parser", "main", "parse_args",
           "parse_min_max_nnodes", "record", "run", "run_script_path"]  # fmt: skip

_OPTIONS: tuple[tuple[str, Any, Any, str], ...] = (  # long name, type (bool: a flag), default, help
    ("nnodes", str, "1:1", "number of machines, or MIN:MAX"),
    ("nproc-per-node", str, "1", "processes on this machine: a number, cpu, gpu or auto"),
    ("rdzv-backend", str, "static", "how machines meet: c10d (by a store) or static (numbered by --node-rank)"),
    ("rdzv-endpoint", str, "", "where machines meet: host:port"),
    ("rdzv-id", str, "none", "name of the job"),
    ("rdzv-conf", str, "", "more about the meeting: key=value,…"),
    ("standalone", bool, False, "one machine, any free port"),
    ("max-restarts", int, 0, "how often all processes are started again after a failure"),
    ("monitor-interval", float, 0.1, "seconds between two looks at the processes"),
    ("start-method", str, "spawn", "of multiprocessing, for functions: spawn, fork or forkserver"),
    ("event-log-handler", str, "null", "accepted; there are no events"),
    ("role", str, "default", "name of the processes"),
    ("module", bool, False, "the program is a module, as after python -m"),
    ("no-python", bool, False, "the program is a command, not a Python file"),
    ("run-path", bool, False, "accepted: Python files are always run by runpy.run_path"),
    ("log-dir", str, None, "folder for output and error files"),
    ("redirects", str, "0", "output to files: 1 (output), 2 (errors), 3 (both), or rank:number,…"),
    ("tee", str, "0", "output to files and, with a prefix, to the console: as --redirects"),
    ("local-ranks-filter", str, "", "local ranks that may write to the console: 0,1,…"),
    ("duplicate-stdout-filters", str, "", "not included"),
    ("duplicate-stderr-filters", str, "", "not included"),
    ("node-rank", int, 0, "number of this machine, for the static rendezvous"),
    ("master-addr", str, "127.0.0.1", "address of machine 0, for the static rendezvous"),
    ("master-port", int, None, "its port; 29500 by default"),
    ("local-addr", str, None, "how other machines reach this one"),
    ("logs-specs", str, None, "not included"),
    ("numa-binding", str, None, "not included"),
    ("signals-to-handle", str, "SIGTERM,SIGINT,SIGHUP,SIGQUIT", "signals that end the job"),
    ("shutdown-timeout", int, None, "seconds that processes have to end by themselves; 30 by default"),
    ("virtual-local-rank", bool, False, "not included"),
)
_CHOICES = {"start-method": ["spawn", "fork", "forkserver"]}
_SHORT = {"module": "-m", "redirects": "-r", "tee": "-t"}
_LEFT_OUT = ("duplicate-stdout-filters", "duplicate-stderr-filters", "logs-specs", "numa-binding", "virtual-local-rank")


def get_args_parser() -> argparse.ArgumentParser:
    """Returns the parser of the command line; defaults come from the variables PET_NNODES, PET_NPROC_PER_NODE, ….

    >>> from tensorgrad.distributed.run import get_args_parser
    >>> args = get_args_parser().parse_args(["--nproc_per_node", "2", "train.py", "--lr", "1"])
    >>> args.nproc_per_node, args.training_script, args.training_script_args
    ('2', 'train.py', ['--lr', '1'])
    """
    parser = argparse.ArgumentParser(prog="python -m tensorgrad.distributed.run", description=__doc__.split("\n")[0])
    for name, kind, default, text in _OPTIONS:
        variable = f"PET_{name.upper().replace('-', '_')}"
        flags = [_SHORT[name]] if name in _SHORT else []
        flags += list(dict.fromkeys([f"--{name}", f"--{name.replace('-', '_')}"]))
        given = os.environ.get(variable)
        if kind is bool:
            on = bool(int(given)) if given and given.isdecimal() else default
            parser.add_argument(*flags, action="store_true", default=on, help=text)
        else:
            value = default if given is None else given
            parser.add_argument(*flags, type=kind, default=value, choices=_CHOICES.get(name), help=text)
    parser.add_argument("training_script", help="a Python file; with -m a module, with --no-python a command")
    parser.add_argument("training_script_args", nargs=argparse.REMAINDER, help="arguments of the program")
    return parser


def parse_args(args: list[str] | None) -> argparse.Namespace:
    """Parses a command line; None is that of this process."""
    return get_args_parser().parse_args(args)


def parse_min_max_nnodes(nnodes: str) -> tuple[int, int]:
    """The least and the greatest number of machines. Raises: RuntimeError.

    >>> from tensorgrad.distributed.run import parse_min_max_nnodes
    >>> parse_min_max_nnodes("1:4"), parse_min_max_nnodes("2")
    ((1, 4), (2, 2))
    """
    parts = nnodes.split(":")
    if len(parts) > 2 or not all(part.strip().isdecimal() for part in parts):
        raise RuntimeError(f'nnodes={nnodes} is not in "MIN:MAX" format')
    return int(parts[0]), int(parts[-1])


def determine_local_world_size(nproc_per_node: str) -> int:
    """The number of processes: a number, or that of processors (`cpu`) or GPUs (`gpu`); `auto` takes GPUs if any.

    >>> from tensorgrad.distributed.run import determine_local_world_size
    >>> determine_local_world_size("4")
    4
    """
    try:
        return int(nproc_per_node)
    except ValueError:
        pass
    if nproc_per_node == "cpu":
        return processors()
    if nproc_per_node not in ("gpu", "auto"):
        raise ValueError(f"Unsupported nproc_per_node value: {nproc_per_node}")
    from tensorgrad import cuda

    count = cuda.device_count() if cuda.is_available() else 0
    if nproc_per_node == "gpu" and not count:
        raise ValueError("Cuda is not available.")
    return count or processors()


def _pairs(text: str) -> dict[str, str]:
    """`key=value,…` as a dictionary. Raises: ValueError."""
    found: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        key, equals, value = part.partition("=")
        if not equals or not key.strip() or not value.strip():
            raise ValueError(f"--rdzv-conf: expected key=value, got {part!r}")
        found[key.strip()] = value.strip()
    return found


def config_from_args(args: argparse.Namespace) -> tuple[LaunchConfig, str, list[str]]:
    """Returns the configuration, the command and its arguments. Raises: ValueError, RuntimeError for bad options."""
    for name in _LEFT_OUT:
        if getattr(args, name.replace("-", "_"), None):
            raise ValueError(f"--{name} is not included")
    if args.standalone:
        args.rdzv_backend, args.rdzv_endpoint, args.rdzv_id = "c10d", "localhost:0", uuid.uuid4().hex
        args.nnodes = "1:1"
    least, most = parse_min_max_nnodes(args.nnodes)
    conf: dict[str, Any] = dict(_pairs(args.rdzv_conf))
    endpoint = args.rdzv_endpoint
    if args.rdzv_backend == "static":
        conf["rank"] = args.node_rank
        endpoint = endpoint or f"{args.master_addr}:{29500 if args.master_port is None else args.master_port}"
    shown = {int(part) for part in args.local_ranks_filter.split(",") if part.strip()} or None
    config = LaunchConfig(
        least, most, determine_local_world_size(args.nproc_per_node),
        logs_specs=DefaultLogsSpecs(args.log_dir, Std.from_str(args.redirects), Std.from_str(args.tee), shown),
        run_id=args.rdzv_id, role=args.role, rdzv_endpoint=endpoint, rdzv_backend=args.rdzv_backend, rdzv_configs=conf,
        max_restarts=args.max_restarts, monitor_interval=args.monitor_interval, start_method=args.start_method,
        local_addr=args.local_addr, signals_to_handle=args.signals_to_handle, shutdown_timeout=args.shutdown_timeout,
    )  # fmt: skip
    program = [args.training_script, *args.training_script_args]
    if args.no_python:
        if args.module:
            raise ValueError("Don't use both the '--no-python' flag and the '--module' flag at the same time.")
        return config, program[0], program[1:]
    start = ["-u", "-m", "tensorgrad.distributed.elastic.worker"]
    command = processes.python(*start, *(["-m"] if args.module else []), *program)
    return config, command[0], command[1:]


def run_script_path(training_script: str, *training_script_args: str) -> None:
    """Runs a Python file in this process, as `__main__`, with `torch` as tensorgrad."""
    from tensorgrad import run as program

    program.main([training_script, *training_script_args])


def run(args: argparse.Namespace) -> None:
    """Runs the job that a parsed command line describes. Raises: ChildFailedError if a process failed."""
    config, command, rest = config_from_args(args)
    elastic_launch(config, command)(*rest)


def main(args: list[str] | None = None) -> None:
    """Runs the job of a command line, and ends this process with 1 if it fails, after a summary."""
    finish(run, parse_args(args))


def finish(function: Any, args: argparse.Namespace) -> None:
    """Calls `function(args)`, and turns its errors into messages and exit codes."""
    try:
        record(function)(args)
    except ChildFailedError as error:
        print(error, file=sys.stderr, flush=True)
        sys.exit(1)
    except SignalException as error:
        print(f"tensorgrad.distributed.run: {error}; all processes have been ended", file=sys.stderr, flush=True)
        sys.exit(128 + error.sigval)
    except (RendezvousError, ValueError, RuntimeError, OSError) as error:
        sys.exit(f"tensorgrad.distributed.run: {error}")


if __name__ == "__main__":
    main()
