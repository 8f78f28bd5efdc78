"""`functorch.compile`: what programs call of the predecessor of `torch.compile`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tensorgrad import compiler

__all__ = ["make_boxed_func", "memory_efficient_fusion", "nop"]


def memory_efficient_fusion(fn: Any, **kwargs: Any) -> Any:
    """Returns what `torch.compile` makes of a function or module: it computes the same.

    Raises:
        NotImplementedError: If compilers of graphs are given, as nothing is compiled.

    >>> from tensorgrad.functorch.compile import memory_efficient_fusion
    >>> memory_efficient_fusion(lambda x: x.sin().cos())(torch.zeros(2))
    tensor([1., 1.])
    """
    if kwargs:
        raise NotImplementedError(
            f"functorch.compile.memory_efficient_fusion(): takes no {', '.join(sorted(kwargs))}: programs are recorded "
            "while they run; torch.compile takes a backend"
        )
    return compiler.compile(fn)


def make_boxed_func(f: Callable[..., Any]) -> Callable[[list], Any]:
    """Returns a function of a list with the arguments, which it hands to `f`.

    >>> from tensorgrad.functorch.compile import make_boxed_func
    >>> make_boxed_func(torch.add)([torch.ones(2), torch.ones(2)])
    tensor([2., 2.])
    """

    @functools.wraps(f)
    def boxed(args: list) -> Any:
        return f(*args)

    boxed._boxed_call = True  # type: ignore[attr-defined]
    return boxed


def nop(fx_g: Any, _: Any) -> Any:
    """Returns a graph as it is: a compiler that compiles nothing.

    >>> from tensorgrad.functorch.compile import nop
    >>> nop("graph", [])
    'graph'
    """
    return fx_g
