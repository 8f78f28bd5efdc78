"""Calls as they were written before PyTorch 1.5, which PyTorch still takes: with the number before the tensors.

p.data.add_(-lr, d_p)                    # now p.data.add_(d_p, alpha=-lr)
v.mul_(b).addcmul_(1 - b, grad, grad)    # now v.mul_(b).addcmul_(grad, grad, value=1 - b)
"""

from __future__ import annotations

from functools import wraps
from numbers import Number

from tensorgrad.ops.errors import warn
from tensorgrad.tensor import Tensor


def number_first(name: str, keyword: str, number, tensors: tuple) -> tuple:
    """The tensors of such a call, and then its number, which is called `keyword` now.

    Raises: TypeError for a call that only has too many arguments.
    """
    count = len(tensors)
    allowed = Tensor | Number if count == 1 else Tensor
    if not isinstance(number, Number) or not all(isinstance(t, allowed) for t in tensors):
        raise TypeError(f"{name}() takes {count + 1} positional arguments but {count + 2} were given")
    now = ", ".join(("other",) if count == 1 else (f"tensor{i + 1}" for i in range(count)))
    warn(
        f"This overload of {name} is deprecated:\n\t{name}(Number {keyword}, {now})\n"
        f"Consider using one of the following signatures instead:\n\t{name}({now}, *, Number {keyword})"
    )
    return (*tensors, number)


def with_number_first(method, keyword: str, count: int):
    """A method of `count` tensors that also takes the number `keyword` before them.

    >>> import warnings
    >>> import tensorgrad as torch
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     torch.zeros(2).addcmul_(10, torch.ones(2), torch.ones(2))
    tensor([10., 10.])
    """

    @wraps(method)
    def either(self, *args, **kwargs):
        if len(args) > count and not kwargs:
            *tensors, kwargs[keyword] = number_first(method.__name__, keyword, args[0], args[1:])
            return method(self, *tensors, **kwargs)
        return method(self, *args, **kwargs)

    return either
