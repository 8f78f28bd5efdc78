"""Calls as written before PyTorch 1.5, which PyTorch still accepts: with the scalar before the tensors.

p.data.add_(-lr, d_p)                    # now p.data.add_(d_p, alpha=-lr)
v.mul_(b).addcmul_(1 - b, grad, grad)    # now v.mul_(b).addcmul_(grad, grad, value=1 - b)
"""

from __future__ import annotations

from numbers import Number

from tensorgrad.errors import warn
from tensorgrad.tensor import Tensor


def number_first(name: str, keyword: str, number, tensors: tuple) -> tuple:
    """The tensors of such a call, then its scalar, which is now the argument `keyword`.

    Raises: TypeError if the call simply has too many arguments.
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


def numbers_first(op, given: tuple, now: tuple) -> tuple:
    """The tensors of a call like `addmm(beta, input, alpha, mat1, mat2)`, and its scalars: those of `now`, unless
    they were given between the tensors.

    Raises: TypeError if the call simply has too many arguments.

    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     torch.zeros(2).addcmul_(10, torch.ones(2), torch.ones(2))
    tensor([10., 10.])
    """
    tensors = [value for value in given if isinstance(value, Tensor)]
    numbers = [value for value in given if isinstance(value, Number)]
    takes = len(op.params) - len(now)
    last = takes - 1  # tensors behind all numbers
    if len(tensors) != takes or len(tensors) + len(numbers) != len(given) or len(numbers) > len(now):
        raise TypeError(f"{op.name}() takes {takes} positional arguments but {len(given)} were given")
    if any(isinstance(value, Number) for value in given[-last:]):
        raise TypeError(f"{op.name}() received an invalid combination of arguments: a number behind the tensors")
    names = ", ".join(p.name for p in op.params[:takes])
    keywords = ", ".join(f"Number {p.name}" for p in op.params[takes:])
    warn(
        f"This overload of {op.name} is deprecated: numbers come by keyword.\n"
        f"Consider using one of the following signatures instead:\n\t{op.name}({names}, *, {keywords})"
    )
    return (*tensors, *numbers, *now[len(numbers) :])
