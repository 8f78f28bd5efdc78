"""The Kullback–Leibler divergence: the dispatch to a formula by the types of both distributions.

The formulas are in `kl.py`, which is what users import; `register_kl` adds others.
"""

from __future__ import annotations

import warnings

from tensorgrad.distributions.distribution import Distribution
from tensorgrad.tensor import Tensor

__all__ = ["kl_divergence", "register_kl"]

_KL_REGISTRY: dict = {}  # (class of p, class of q) -> formula
_KL_MEMOIZE: dict = {}  # the same for the types of earlier calls


def register_kl(type_p, type_q):
    """A decorator that registers a function of (p, q) as the formula for these classes and their subclasses.

    Raises:
        TypeError: `type_p` or `type_q` is not a class.

    >>> D = torch.distributions
    >>> class Mine(D.Normal):
    ...     pass
    >>> @D.register_kl(Mine, Mine)
    ... def kl_mine(p, q):
    ...     return p.loc - q.loc
    >>> D.kl_divergence(Mine(3.0, 1.0), Mine(1.0, 1.0))
    tensor(2.)
    """
    for name, given in (("type_p", type_p), ("type_q", type_q)):
        if not isinstance(given, type):
            raise TypeError(f"Expected {name} to be a Distribution subclass but got {given}")

    def decorator(formula):
        _KL_REGISTRY[type_p, type_q] = formula
        _KL_MEMOIZE.clear()
        return formula

    return decorator


def _steps(mro: tuple[type, ...], ancestor: type) -> int:
    """Returns the position of an ancestor in the MRO; a virtual base class, which is not in it, comes last."""
    return mro.index(ancestor) if ancestor in mro else len(mro)


def _find(type_p: type, type_q: type):
    """Returns the formula registered for the nearest base classes, or NotImplemented.

    If no pair is nearest for both, the one nearer to p's class is used, with a warning.
    """
    mro_p, mro_q = type_p.__mro__, type_q.__mro__
    found = [
        (_steps(mro_p, p), _steps(mro_q, q), formula, p, q)
        for (p, q), formula in _KL_REGISTRY.items()
        if issubclass(type_p, p) and issubclass(type_q, q)
    ]
    if not found:
        return NotImplemented
    left = min(found, key=lambda f: (f[0], f[1]))
    right = min(found, key=lambda f: (f[1], f[0]))
    if left[2] is not right[2]:
        p, q = left[3].__name__, right[4].__name__
        warnings.warn(
            f"Ambiguous kl_divergence({type_p.__name__}, {type_q.__name__}). Please register_kl({p}, {q})",
            RuntimeWarning,
            stacklevel=3,
        )
    return left[2]


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """Returns KL(p ‖ q) = E log p(x) / q(x), the mean over the samples of p: batch_shape.

    Raises:
        NotImplementedError: no formula is registered for the classes of p and q.

    >>> D = torch.distributions
    >>> D.kl_divergence(D.Normal(0.0, 1.0), D.Normal(1.0, 1.0))
    tensor(0.5000)
    """
    types = type(p), type(q)
    formula = _KL_MEMOIZE.get(types)
    if formula is None:
        formula = _KL_MEMOIZE[types] = _find(*types)
    if formula is NotImplemented:
        raise NotImplementedError(
            f"No KL(p || q) is implemented for p type {types[0].__name__} and q type {types[1].__name__}"
        )
    return formula(p, q)
