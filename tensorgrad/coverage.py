"""How much of PyTorch is implemented, measured with PyTorch's own test databases:

python -m tensorgrad.coverage            the whole report
python -m tensorgrad.coverage norm       only the lines that contain "norm"
"""

from __future__ import annotations

from pathlib import Path


def report() -> str:
    """Returns the report that `make conformance` writes: `docs/coverage.md` in the repository; wheels include a copy.

    >>> from tensorgrad.coverage import report
    >>> report().startswith("# What of PyTorch is here")
    True
    """
    here = Path(__file__).resolve().parent
    path = here / "coverage.md"
    return (path if path.exists() else here.parent / "docs" / "coverage.md").read_text(encoding="utf-8")


def main(words: list[str]) -> int:
    """Prints the report, or its lines that contain any of the words. Returns 1 if there are none."""
    lines = [line for line in report().splitlines() if not words or any(word in line for word in words)]
    print("\n".join(lines))
    return 0 if lines else 1


if __name__ == "__main__":
    from tensorgrad.system.command import run

    run(main)
