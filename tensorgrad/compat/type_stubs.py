"""Stubs by which editors and type checkers find `torch` where `import torch` is tensorgrad.

They do not run Python, so they know nothing of the import hook. For every module that programs import as `torch.x` a
stub says that its names are those of `tensorgrad.x`. `python -m tensorgrad.compat enable` writes the stubs beside the
other packages, as `torch-stubs`, where checkers look by themselves; `python -m tensorgrad.compat stubs FOLDER` writes
them anywhere else.
"""

from __future__ import annotations

import ast
import os
import shutil
from collections.abc import Iterator

NAME = "torch-stubs"
_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# The folders of the package in which PyTorch has nothing.
_INSIDE = ("_stubs", "compat", "dispatch", "kernels", "ops", "overriding", "rows", "system", "transforms")
_MARK = "# Written by `python -m tensorgrad.compat`, which also removes it.\n"


def write(folder: str) -> int:
    """Writes the stubs of `torch` into a folder, and returns how many modules they are for.

    Raises:
        FileExistsError: The folder has something else in it.
        OSError: It cannot be written to.
    """
    if os.path.exists(folder) and os.listdir(folder) and not is_ours(folder):
        raise FileExistsError(f"{folder} is not empty, and not written by tensorgrad: choose another folder")
    remove(folder)
    count = 0
    for module, text in stubs():
        parts = module.split(".")[1:]
        path = os.path.join(folder, *parts[:-1], f"{parts[-1]}.pyi")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        count += 1
    with open(os.path.join(folder, "py.typed"), "w", encoding="utf-8"):
        pass
    return count


def remove(folder: str) -> bool:
    """Removes a folder of stubs; returns whether there was one. Any other folder is left alone."""
    if not is_ours(folder):
        return False
    shutil.rmtree(folder)
    return True


def is_ours(folder: str) -> bool:
    """Returns whether a folder has stubs that `write` made.

    >>> from tensorgrad.compat.type_stubs import is_ours
    >>> is_ours("no such folder")
    False
    """
    try:
        with open(os.path.join(folder, "__init__.pyi"), encoding="utf-8") as file:
            return file.readline() == _MARK
    except OSError:
        return False


def stubs() -> Iterator[tuple[str, str]]:
    """Yields the name of each module, such as `torch.nn.functional` or `torch.nn.__init__`, with its stub.

    >>> from tensorgrad.compat.type_stubs import stubs
    >>> "from tensorgrad.nn import Linear as Linear" in dict(stubs())["torch.nn.__init__"]
    True
    """
    for folder, folders, files in os.walk(_ROOT):
        inside = os.path.relpath(folder, _ROOT)
        if inside == ".":
            folders[:] = [name for name in folders if name not in _INSIDE]
        folders[:] = sorted(name for name in folders if name.isidentifier() and name != "__pycache__")
        package = "" if inside == "." else "." + inside.replace(os.sep, ".")
        for module in sorted({file.partition(".")[0] for file in files if file.endswith((".py", ".pyi"))}):
            if module != "__main__":
                ours = f"tensorgrad{package}" + ("" if module == "__init__" else f".{module}")
                yield f"torch{package}.{module}", _stub(ours, os.path.join(folder, module))


def _stub(module: str, path: str) -> str:
    """The stub of a module: its names, as PyTorch's module has them."""
    source = path + (".pyi" if os.path.exists(path + ".pyi") else ".py")
    with open(source, encoding="utf-8") as file:
        names = {name for name in names_in(ast.parse(file.read()).body) if not name.startswith("__")}
    lines = [f"from {module} import {name} as {name}\n" for name in sorted(names)]
    return "".join([_MARK, f"from {module} import *\n", *lines])


def names_in(body: list[ast.stmt]) -> Iterator[str]:
    """The names that statements bind at the top of a module."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Import | ast.ImportFrom):
            if getattr(node, "module", None) != "__future__":
                names = [
                    a.asname or a.name for a in node.names if a.name != "*" and not (a.asname or "").startswith("_")
                ]
                yield from (name for name in names if "." not in name)
        elif isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id
        elif isinstance(node, ast.If):  # what type checkers see
            yield from names_in(node.body)
