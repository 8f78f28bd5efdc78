"""optree takes containers apart by their exact type. A module's tables are dicts to it, as PyTorch's are."""

from __future__ import annotations

import sys
from typing import Any

from tensorgrad.nn.members import Members

__all__ = ["execute"]


def execute(loader: Any, module: Any) -> None:
    """Runs optree by its loader, and tells it of `Members`."""
    loader.exec_module(module)
    tell(module)


def tell_loaded() -> None:
    """Tells optree of `Members` if it was loaded before tensorgrad was."""
    optree = sys.modules.get("optree")
    if optree is not None and getattr(optree.__spec__, "_initializing", False) is False:
        tell(optree)


def tell(optree: Any) -> None:
    """Tells optree of `Members`, once."""
    everywhere = vars(sys.modules["optree.registry"])["__GLOBAL_NAMESPACE"]
    if optree.register_pytree_node.get(Members) is None:
        optree.register_pytree_node(
            Members, _flatten, _unflatten, path_entry_type=optree.MappingEntry, namespace=everywhere
        )


def _flatten(members: Members) -> tuple[list[Any], tuple[str, ...], tuple[str, ...]]:
    """The members by their names, in the order in which optree has those of a dict."""
    names = tuple(sorted(members))
    return [members[name] for name in names], names, names


def _unflatten(names: tuple[str, ...], values: Any) -> Members:
    """A table of no module. (A dict would not be of one structure with the tables of modules.)"""
    return Members(zip(names, values, strict=True))
