"""Values in nested containers, in the order that a description of them says: `torch.fx._pytree`."""

from __future__ import annotations

from typing import Any

from tensorgrad.utils._pytree import TreeSpec, tree_flatten

__all__ = ["tree_flatten_spec"]


def tree_flatten_spec(pytree: Any, spec: TreeSpec, exact_structural_match: bool = False) -> list[Any]:
    """Returns the values of nested containers.

    Args:
        pytree: the containers.
        spec: how they were nested when a graph was made of them.
        exact_structural_match: accepted for compatibility: they must be nested so.

    Raises:
        RuntimeError: If they are nested in another way.

    >>> from tensorgrad.utils._pytree import tree_flatten
    >>> from tensorgrad.fx._pytree import tree_flatten_spec
    >>> tree_flatten_spec([{"a": 3}, 4], tree_flatten([{"a": 1}, 2])[1])
    [3, 4]
    """
    values, found = tree_flatten(_listed(pytree, spec))
    if found != spec:
        raise RuntimeError(f"expected values nested as {spec}, got {found}")
    return values


def _listed(value: Any, spec: TreeSpec) -> Any:
    """A list or a tuple as the kind of sequence that the description names."""
    if isinstance(value, list | tuple) and spec.type in (list, tuple) and type(value) in (list, tuple):
        return spec.type(_listed(v, s) for v, s in zip(value, spec.children(), strict=False))
    return value
