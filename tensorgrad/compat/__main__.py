"""Makes `import torch` mean tensorgrad in a whole Python environment, or ends that.

python -m tensorgrad.compat enable
python -m tensorgrad.compat disable
python -m tensorgrad.compat status
python -m tensorgrad.compat stubs FOLDER    (only writes stubs of `torch`, for editors and type checkers)
python -m tensorgrad.compat check WHAT      (what a program and its libraries use that is not here, and where)

WHAT is a folder of programs, a requirements.txt or a pyproject.toml. Nothing of it is run: files are parsed, those of
the installed libraries too. Or it is a folder of wheels (`pip download --no-deps -d FOLDER timm peft`): libraries that
are not installed yet. The exit status is 1 if an import would fail.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tensorgrad.compat import type_stubs
from tensorgrad.compat.environment import disable, enable, status

COMMANDS = {"enable": enable, "disable": disable, "status": status}
USAGE = "usage: python -m tensorgrad.compat enable | disable | status | stubs FOLDER | check WHAT   (--help: more)"


def main(arguments: list[str]) -> int:
    """Runs one command and prints what it did. Returns 0; 1 if it was refused, 2 if there is no such command."""
    if arguments in (["-h"], ["--help"]):
        print((__doc__ or "").rstrip())
        return 0
    if len(arguments) == 2 and arguments[0] == "stubs":
        return _write_stubs(arguments[1])
    if len(arguments) == 2 and arguments[0] == "check":
        return _check(arguments[1])
    if len(arguments) != 1 or arguments[0] not in COMMANDS:
        print(USAGE, file=sys.stderr)
        return 2
    try:
        print(COMMANDS[arguments[0]]())
    except (OSError, RuntimeError) as error:
        print(f"python -m tensorgrad.compat {arguments[0]}: {error}", file=sys.stderr)
        return 1
    return 0


def _write_stubs(folder: str) -> int:
    try:
        count = type_stubs.write(os.path.join(folder, "torch"))
    except OSError as error:
        print(f"python -m tensorgrad.compat stubs: {error}", file=sys.stderr)
        return 1
    print(
        f"stubs of {count} modules of torch are in {folder}: tell your checker (stubPath of pyright, mypy_path of mypy)"
    )
    return 0


def _check(what: str) -> int:
    from tensorgrad.compat import check

    try:
        text, good = check.report(Path(what))
    except (OSError, ValueError) as error:
        print(f"python -m tensorgrad.compat check: {error}", file=sys.stderr)
        return 2
    print(text)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
