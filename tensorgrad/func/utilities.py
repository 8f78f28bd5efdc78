"""The remaining functions of `torch.func`."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

import tensorgrad as torch
from tensorgrad.tensor import Tensor


def functionalize(func: Callable, *, remove: str = "mutations") -> Callable:
    """Returns `func` wrapped unchanged: without a compiler, its in-place writes need not be replaced.

    Raises:
        RuntimeError: If `remove` is neither `"mutations"` nor `"mutations_and_views"`.

    >>> torch.func.functionalize(lambda x: x.add_(1))(torch.zeros(2))
    tensor([1., 1.])
    """
    if remove not in ("mutations", "mutations_and_views"):
        raise RuntimeError(
            f"functionalize(f, remove='mutations'): received invalid argument for remove={remove}. Valid options are "
            "'mutations' and 'mutations_and_views'."
        )

    @functools.wraps(func, updated=())
    def same(*args: Any, **kwargs: Any) -> Any:
        return func(*args, **kwargs)

    return same


def debug_unwrap(tensor: Tensor, *, recurse: bool = True) -> Tensor:
    """Returns the tensor itself: transforms here use no wrappers.

    >>> torch.func.debug_unwrap(torch.ones(1))
    tensor([1.])
    """
    return tensor


# --- rearrange -------------------------------------------------------------------------------------------------------


def rearrange(tensor: Tensor | Sequence[Tensor], pattern: str, **axes_lengths: int) -> Tensor:
    """Reorders, splits and merges dimensions according to a pattern (Rogozhnikov, *Einops*, 2022).

    Args:
        tensor: A tensor; a list of them is stacked first.
        pattern: Names of the dimensions before and after `->`. Names in parentheses form one dimension; `...` means
            any other dimensions, `1` a dimension of that size.
        axes_lengths: Sizes of dimensions that cannot be inferred from the shape.

    Raises:
        ValueError: If the pattern is invalid, or does not match the shape.

    >>> images = torch.zeros(32, 30, 40, 3)
    >>> torch.func.rearrange(images, "b h w c -> b c h w").shape
    torch.Size([32, 3, 30, 40])
    >>> torch.func.rearrange(images, "b (h1 h) (w1 w) c -> (b h1 w1) h w c", h1=2, w1=2).shape
    torch.Size([128, 15, 20, 3])
    """
    if not isinstance(tensor, Tensor):
        tensor = torch.stack(list(tensor))
    sides = pattern.split("->")
    if len(sides) != 2:
        raise ValueError(f"rearrange: the pattern needs one '->', got {pattern!r}")
    before, after = (_groups(side, pattern) for side in sides)
    _check_pattern(before, after, axes_lengths, pattern)
    before, after = (_without_ellipsis(groups, before, tensor.dim(), pattern) for groups in (before, after))
    if len(before) != tensor.dim():
        raise ValueError(f"rearrange: {pattern!r} has {len(before)} dimensions, the tensor has {tensor.dim()}")
    sizes = _sizes(before, tensor.shape, axes_lengths, pattern)
    order = [name for group in before for name in group]
    split = tensor.reshape([sizes[name] for name in order])
    moved = split.permute([order.index(name) for group in after for name in group])
    shape = []
    for group in after:
        shape.append(1)
        for name in group:
            shape[-1] *= sizes[name]
    return moved.reshape(shape)


_MERGED = "(...)"  # an ellipsis in parentheses


def _groups(side: str, pattern: str) -> list[list[str]]:
    """The dimensions of one side, each as a list of the names in it; empty for a dimension of size 1."""
    groups: list[list[str]] = []
    inside = False
    for word in re.findall(r"\(|\)|\.\.\.|\w+|\S", side):
        if word in ("(", ")"):
            if inside is (word == "("):
                raise ValueError(f"rearrange: parentheses do not match in {pattern!r}")
            inside = word == "("
            groups += [[]] if inside else []
        elif word == "1":
            groups += [] if inside else [[]]
        elif word != "..." and not word.isidentifier():
            raise ValueError(f"rearrange: {word!r} in {pattern!r} is not a name")
        elif inside:
            groups[-1].append(_MERGED if word == "..." else word)
        else:
            groups.append([word])
    if inside:
        raise ValueError(f"rearrange: parentheses do not match in {pattern!r}")
    return groups


def _check_pattern(before: list, after: list, lengths: dict, pattern: str) -> None:
    names = [[name.strip("()") for group in groups for name in group] for groups in (before, after)]
    for side in names:
        if len(set(side)) != len(side):
            raise ValueError(f"rearrange: a name appears twice on one side of {pattern!r}")
    if set(names[0]) != set(names[1]):
        raise ValueError(f"rearrange: the two sides of {pattern!r} have different names")
    if any(_MERGED in group for group in before):
        raise ValueError(f"rearrange: '...' in parentheses on the left side of {pattern!r}")
    unknown = sorted(set(lengths) - set(names[0]))
    if unknown:
        raise ValueError(f"rearrange: {unknown} are not in {pattern!r}")


def _without_ellipsis(groups: list, before: list, ndim: int, pattern: str) -> list:
    """The groups with '...' replaced by names for the remaining dimensions."""
    if ["..."] not in before:
        return groups
    count = ndim - len(before) + 1
    if count < 0:
        raise ValueError(f"rearrange: {pattern!r} has more than {ndim} dimensions")
    others = [f"...{i}" for i in range(count)]
    done: list[list[str]] = []
    for group in groups:
        if group == ["..."]:
            done += [[name] for name in others]
        else:
            done.append([name for part in group for name in (others if part == _MERGED else [part])])
    return done


def _sizes(before: list, shape: Any, lengths: dict[str, int], pattern: str) -> dict[str, int]:
    """The size of each name. Raises: ValueError if the shape does not match, or leaves more than one unknown."""
    sizes = dict(lengths)
    for group, size in zip(before, shape, strict=True):
        known = 1
        for name in group:
            known *= sizes.get(name, 1)
        unknown = [name for name in group if name not in sizes]
        if len(unknown) > 1:
            raise ValueError(f"rearrange: the sizes of {unknown} in {pattern!r} cannot be inferred from the shape")
        if (size != known) if not unknown else (not known or size % known):
            raise ValueError(f"rearrange: a dimension of size {size} does not match {group or [1]} in {pattern!r}")
        if unknown:
            sizes[unknown[0]] = size // known
    return sizes
