"""One environment with all libraries, and packages that change others by being installed.

The environments of one library each cannot see that: accelerate, transformers and Lightning import such packages, or
go other ways, as soon as they are there.
"""

from __future__ import annotations

import sys

from tests.ecosystem import running
from tests.ecosystem.environments import alone
from tests.ecosystem.libraries import LIBRARIES, Library

# package -> the modules of it that are imported
BESIDE = {
    "bitsandbytes": ("bitsandbytes", "bitsandbytes.optim"),
    "deepspeed": ("deepspeed",),
    "torch-fidelity": ("torch_fidelity",),
    "torchdata": ("torchdata", "torchdata.nodes", "torchdata.stateful_dataloader"),
    "trl": ("trl",),
}

_SHARING = [library for library in LIBRARIES if not library.apart]
TOGETHER = Library(
    "together",
    requirements=tuple(dict.fromkeys((*(r for library in _SHARING for r in library.requirements), *BESIDE))),
    imports=tuple(dict.fromkeys((*sum(BESIDE.values(), ()), *(m for library in _SHARING for m in library.imports)))),
    programs=tuple(name for library in _SHARING for name in library.programs),
)


def run(only: list[str] | None = None, *, exits: bool = False) -> list[str]:
    """Makes the environment, imports everything in one process, and runs the programs. Returns the failures.

    Args:
        only: The programs to run; by default all.
        exits: Whether each runs ten times more, to see how its processes end.
    """
    failures = []
    with alone(TOGETHER) as python:
        try:
            running.imports(python, TOGETHER)
        except running.Failed as error:
            failures.append(f"imports: {error}")
        for name in only or TOGETHER.programs:
            try:
                running.compare(name, running.run_program(python, name))
                told = running.endings(python, name) if exits else "yes"
            except running.Failed as error:
                told = str(error).removeprefix(f"{name}: ")
            failures += [f"{name}: {told}"] if told != "yes" else []
            print(f"{name}: {told}", file=sys.stderr)
    return failures
