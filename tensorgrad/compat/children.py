"""Makes `torch` mean tensorgrad in the processes that a program starts: those of `multiprocessing`, and all others.

Processes of `multiprocessing` are told on their command line. Others (a launcher's `subprocess.Popen([sys.executable,
"train.py"])`, Ray's workers) inherit two environment variables: PYTHONPATH begins with the folder `startup`, whose
`sitecustomize.py` Python runs when it starts, and TENSORGRAD_COMPAT is 1. Without the second, the file does nothing.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from tensorgrad.system.processes import WEBASSEMBLY

VARIABLE = "TENSORGRAD_COMPAT"
_STARTUP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "startup")


def of_multiprocessing(wanted: bool) -> None:
    """Makes processes started by `multiprocessing` install the hook before they load the main program, or ends that."""
    if sys.platform in WEBASSEMBLY:  # it has no processes
        return
    from multiprocessing import set_forkserver_preload, spawn

    original = getattr(spawn.get_command_line, "original", spawn.get_command_line)

    def get_command_line(**options: Any) -> list[str]:
        command = original(**options)
        at = command.index("-c") + 1 if "-c" in command else 0
        if at:  # not in frozen programs
            command[at] = f"import tensorgrad.compat.child; {command[at]}"
        return command

    get_command_line.original = original  # type: ignore[attr-defined]
    spawn.get_command_line = get_command_line if wanted else original
    set_forkserver_preload(["tensorgrad.compat.child"] if wanted else ["__main__"])


def of_any_kind(wanted: bool) -> None:
    """Changes the environment that processes inherit: they answer `import torch` with tensorgrad, or do not.

    Processes that ignore PYTHONPATH (`python -I`, `python -E`) are not reached.

    >>> import os
    >>> from tensorgrad.compat import children
    >>> before = os.environ.get("PYTHONPATH")
    >>> children.of_any_kind(True)
    >>> os.environ["TENSORGRAD_COMPAT"]
    '1'
    >>> children.of_any_kind(False)
    >>> "TENSORGRAD_COMPAT" in os.environ, os.environ.get("PYTHONPATH") == before
    (False, True)
    """
    given = os.environ.get("PYTHONPATH")
    others = [folder for folder in (given.split(os.pathsep) if given else []) if folder != _STARTUP]
    if wanted:
        os.environ["PYTHONPATH"] = os.pathsep.join([_STARTUP, *others])
        os.environ[VARIABLE] = "1"
        return
    os.environ.pop(VARIABLE, None)
    if others:
        os.environ["PYTHONPATH"] = os.pathsep.join(others)
    elif given is not None:
        del os.environ["PYTHONPATH"]
