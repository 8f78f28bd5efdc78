"""The chi-squared distribution."""

from __future__ import annotations

from tensorgrad.distributions import constraints
from tensorgrad.distributions.gamma import Gamma

__all__ = ["Chi2"]


class Chi2(Gamma):
    """The chi-squared distribution: the sum of `df` squared standard normals; a gamma distribution.

    >>> torch.distributions.Chi2(torch.tensor([3.0])).mean
    tensor([3.])
    """

    arg_constraints = {"df": constraints.positive}

    def __init__(self, df, validate_args=None) -> None:
        super().__init__(0.5 * df, 0.5, validate_args=validate_args)

    @property
    def df(self):
        """The degrees of freedom."""
        return self.concentration * 2
