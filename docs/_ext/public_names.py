"""Which names the reference has: what the rooms that its pages list hold in the package. Needs no Sphinx."""

from __future__ import annotations

import functools
import importlib
import inspect
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import tensorgrad
from tensorgrad.ops import FAMILIES

PAGES = Path(__file__).parent.parent / "reference"
DIRECTIVE = re.compile(r"^```\{reference\} ?(\S*)((?:\n:[\w-]+:.*)*)", re.MULTILINE)


@functools.cache
def rooms() -> dict[str, frozenset[str]]:
    """The rooms that the pages list -> what they leave out."""
    found = {}
    for page in sorted(PAGES.glob("*.md")):
        for room, options in DIRECTIVE.findall(page.read_text(encoding="utf-8")):
            left_out = re.search(r":except: (.*)", options)
            found[room] = frozenset(left_out[1].split() if left_out else ())
    return found


@functools.cache
def public(room: str) -> dict[str, Any]:
    """The functions, classes and properties that users find in a room ("" is `torch`, "Tensor" the class)."""
    if room == "Tensor":
        found = dict(vars(tensorgrad.Tensor))
    else:
        module = importlib.import_module(f"tensorgrad.{room}".rstrip("."))
        names = getattr(module, "__all__", None) or dir(module)
        found = {name: getattr(module, name) for name in names if not name.startswith("_")}
    left_out = rooms().get(room, ())
    if room:
        left_out = {*left_out, "Tensor"}  # what a module imports for itself
    return {n: v for n, v in sorted(found.items()) if not n.startswith("_") and n not in left_out and _ours(v)}


def _ours(value) -> bool:
    if isinstance(value, property):
        return True
    inside = (getattr(value, "__module__", None) or "").startswith("tensorgrad")
    return callable(value) and inside and not isinstance(value, ModuleType)


@functools.cache
def _families() -> dict[Any, str]:
    """Rows and functions of the op files -> the file that has them."""
    rooms: dict = {}
    for family in FAMILIES:
        for value in vars(importlib.import_module(f"tensorgrad.ops.{family}")).values():
            if callable(value):
                rooms.setdefault(getattr(value, "op", value), family)
    rooms.pop(None, None)
    return rooms


def family(room: str, name: str, value) -> tuple[str, str]:
    """The file that a name of a room comes from, as the title of a section, and what that file is about."""
    if name.endswith("_") and name[:-1] in public(room):
        name, value = name[:-1], public(room)[name[:-1]]
    plain = inspect.unwrap(getattr(value, "fget", value))
    module = getattr(plain, "__module__", None) or ""
    if module in ("", "tensorgrad"):  # what rows and loops made
        module = f"tensorgrad.ops.{_families().get(getattr(plain, 'op', plain), '')}"
    file = module.rpartition(".")[2]
    if not (module.startswith(f"tensorgrad.{room or 'ops'}.") and file) and module not in ALSO:
        return "Others", ""
    about = (importlib.import_module(module).__doc__ or "").strip().partition("\n\n")[0].replace("\n", " ")
    return file.replace("_", " ").capitalize(), about


ALSO = [f"tensorgrad.{file}" for file in ("random", "settings", "queries", "dtypes")]  # beside the op files


@functools.cache
def known() -> frozenset[str]:
    """Every name that the reference has."""
    return frozenset(full_name(room, name) for room in rooms() for name in public(room))


def full_name(room: str, name: str) -> str:
    """A name as users write it: `torch.nn.Linear` for "nn" and "Linear"."""
    return f"torch.{room}.{name}".replace("..", ".")


@functools.cache
def first_names() -> dict[int, str]:
    """Where each function or class is described: under the shortest of its names."""
    found: dict[int, str] = {}
    for room in rooms():
        for name, value in public(room).items():
            full = full_name(room, name)
            found[id(value)] = min(found.get(id(value), full), full, key=lambda n: (n.count("."), len(n), n))
    return found
