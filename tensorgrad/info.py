"""Prints what this installation consists of.

python -m tensorgrad.info
"""

from __future__ import annotations

import os
import platform
from importlib import metadata


def versions() -> list[str]:
    """Returns the optional and required packages with their versions, or "not installed"."""
    found = []
    for name in ("numpy", "ml_dtypes"):
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            found.append(f"{name} not installed")
    return found


def kernels() -> list[str]:
    """Describes the compiled kernels that the package carries, and those that this process cannot use."""
    from tensorgrad.kernels.compiled import table
    from tensorgrad.kernels.compiled.runtime import library

    if not table.wanted():
        return ["not used: TENSORGRAD_FAST=0, or a Python without the GIL"]
    try:
        image = library.image()
    except library.Unusable as error:
        return [f"not used: {error}"]
    size = sum(entry["length"] for entry in image.families.values())
    lines = [f"{image.file}: {len(image.families)} families, {size / 2**20:.2f} MiB of code"]
    changed = [name for name, entry in image.families.items() if entry["sources"] != library.source_digest(name)]
    return lines + [
        f"not used: {name}, whose sources have changed; `make kernels` in the repository compiles it"
        for name in sorted(changed)
    ]


def main(arguments: list[str]) -> int:
    """Prints the report."""
    import tensorgrad as torch
    from tensorgrad.system import blas

    print(f"tensorgrad {torch.version.tensorgrad}, after PyTorch {torch.__version__}")
    print(f"Python {platform.python_version()}, {platform.platform()}, {os.cpu_count()} processors")
    print(", ".join(versions()))
    products = ", ".join(f"{library.name} {library.threads()}" for library in blas.libraries())
    print(f"threads: {torch.get_num_threads()}; of NumPy's own products: {products or 'unknown'}")
    print("compiled kernels:")
    for line in kernels():
        print(f"  {line}")
    return 0


if __name__ == "__main__":
    from tensorgrad.system.command import run

    run(main)
