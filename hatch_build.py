"""Writes the type stubs and compiles the kernels when a wheel or an sdist is built, and puts their files into it.

The stubs are for editors and type checkers (`python -m tensorgrad._stubs`), and an editable installation writes them
into the checkout.

A wheel that pip makes on the user's machine gets the kernels of this machine; with TENSORGRAD_LEVELS=all, as for a
release, those of all. What an sdist brings along need not be compiled. An editable installation reads the checkout,
where `make kernels` compiles. Without Numba the wheel has none, and NumPy computes everything.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

IMAGES = "tensorgrad/kernels/images"


class CustomBuildHook(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        subprocess.run([sys.executable, "-m", "tensorgrad._stubs"], cwd=root, check=True)
        build_data["artifacts"].append("/tensorgrad/**/*.pyi")
        if version == "editable":
            return
        there = list((root / IMAGES).glob("*.kernels"))
        levels = ["--all"] if os.environ.get("TENSORGRAD_LEVELS") == "all" else []
        if not ((root / "PKG-INFO").exists() and there):  # an sdist's are of its sources
            done = subprocess.run([sys.executable, "-m", "tools.kernels", *levels], cwd=root)
            if done.returncode:
                self.app.display_warning("tensorgrad is built without compiled kernels: NumPy computes everything")
        build_data["artifacts"].append(f"/{IMAGES}/*.kernels")
