"""What runs in a process of a job: the user's program, with tensorgrad as `torch`; or a function.

python -m tensorgrad.distributed.elastic.worker script.py [arguments ...]
python -m tensorgrad.distributed.elastic.worker -m module [arguments ...]
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from typing import Any

from tensorgrad.distributed.elastic.multiprocessing.errors import ErrorHandler, formatted
from tensorgrad.system import watchdog

__all__ = ["call", "main"]


def _show(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    """Prints a traceback with the rank before each line, in one piece."""
    lines = "".join(formatted(error)).splitlines()
    rank = os.environ.get("RANK", "?")
    sys.stderr.write("".join(f"[rank{rank}]: {line}\n" for line in lines))
    sys.stderr.flush()


def main(arguments: list[str]) -> int:
    """Runs a program; an exception that leaves it is written to the error file, for the agent."""
    from tensorgrad import run

    sys.excepthook = _show
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # `-u` writes a line and its end apart: ranks would share lines
            stream.reconfigure(line_buffering=True, write_through=False)
    if os.environ.pop("TENSORGRAD_PASS_LOCAL_RANK", "0") == "1":  # started by `launch`
        place = 2 if arguments[0] == "-m" else 1
        arguments = [*arguments[:place], f"--local-rank={os.environ['LOCAL_RANK']}", *arguments[place:]]
    try:
        return run.main(arguments)
    except SystemExit:
        raise
    except KeyboardInterrupt:  # the agent, which passes Ctrl-C on, says so
        sys.exit(130)
    except BaseException as error:
        ErrorHandler().record_exception(error)
        world = sys.modules.get("tensorgrad.distributed.mpi.world")
        if world is not None:
            world.give_up()
        raise


def call(
    function: Callable[..., Any], args: tuple, environment: dict[str, str], paths: list[str | None], results: Any
) -> None:
    """Runs a function in a process that `multiprocessing` has started."""
    watchdog.end_with_parent()
    os.environ.update(environment)
    for path, descriptor in zip(paths, (1, 2)):
        if path is not None:
            opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            os.dup2(opened, descriptor)
            os.close(opened)
    try:
        results.send(function(*args))
    except SystemExit:
        raise
    except BaseException as error:
        ErrorHandler().record_exception(error)
        _show(type(error), error, None)
        sys.exit(1)
    finally:
        results.close()


if __name__ == "__main__":
    watchdog.end_with_parent()
    sys.path.pop(0)  # `-m` added the current folder; the program should not see it
    sys.exit(main(sys.argv[1:]))
