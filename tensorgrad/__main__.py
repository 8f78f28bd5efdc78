"""The commands of tensorgrad:

    python -m tensorgrad                 lists them
    python -m tensorgrad info            runs one, as `python -m tensorgrad.info` does
    python -m tensorgrad info --help     says how to use it

Where the package is installed, `tensorgrad` is short for `python -m tensorgrad`, and `tensorgrad-run` for
`python -m tensorgrad.run`.
"""

from __future__ import annotations

import difflib
import runpy
import sys

COMMANDS = {
    "run": "runs a PyTorch program, unchanged: `import torch` is tensorgrad there",
    "compat": "makes `import torch` mean tensorgrad in every program of this environment",
    "distributed.run": "starts the processes of a distributed program, as torchrun does",
    "info": "prints what this installation consists of",
    "utils.collect_env": "prints versions and the machine in PyTorch's form, for reports of errors",
    "coverage": "prints how much of PyTorch is implemented",
    "dispatch.show": "prints what an op became: its kernels and its generated functions",
    "capture": "prints what the compiled functions of a program do: graphs, effects, what they read",
    "kernels.cuda.runtime.program": "prints the CUDA program of a kernel",
    "distributed.launch": "the older form of distributed.run",
    "_stubs": "writes the type stubs of a checkout again",
}


def listed() -> str:
    """Returns the commands with what they do.

    >>> from tensorgrad.__main__ import listed
    >>> "python -m tensorgrad.info" in listed()
    True
    """
    width = max(map(len, COMMANDS))
    return "\n".join(f"  python -m tensorgrad.{name.ljust(width)}  {text}" for name, text in COMMANDS.items())


def main() -> None:
    """Runs the command that the arguments name, or lists all."""
    name, *rest = sys.argv[1:] or ["--help"]
    if name in ("-h", "--help"):
        print(f"Commands (each answers --help):\n\n{listed()}")
        return
    if name not in COMMANDS:
        close = difflib.get_close_matches(name, COMMANDS)
        hint = f"; close: {', '.join(close)}" if close else ""
        sys.exit(f"there is no command {name!r}{hint} (`python -m tensorgrad` lists all)")
    sys.argv = [name, *rest]
    runpy.run_module(f"tensorgrad.{name}", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
