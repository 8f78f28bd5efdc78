"""Orthogonal polynomials: without derivatives, as in PyTorch; found in `torch.special`.

The degree is a tensor or number like the argument, promoted with it; a fraction is cut off, and a negative degree
gives 0.
"""

from __future__ import annotations

from tensorgrad.dispatch.kinds import pointwise
from tensorgrad.ops.special.special import SPECIAL, real_only

_DOC = """{text}, elementwise; either may be a number. Without a derivative.

>>> import tensorgrad as torch
>>> torch.special.{name}(torch.tensor([0.5]), torch.tensor([0, 1, 2]))
tensor([{values}])"""


def _row(name: str, text: str, values: str):
    """A row with the values at 1/2 of the degrees 0, 1, 2 as the example."""
    SPECIAL[name] = pointwise(f"special_{name}(x, n)", f"orthogonal.{name}", numbers="all", rule="float", where="",
                              in_place=False, prepare=real_only(name, half=False),
                              doc=_DOC.format(name=name, text=text, values=values))  # fmt: skip
    return SPECIAL[name]


chebyshev_polynomial_t = _row(
    "chebyshev_polynomial_t",
    "Chebyshev's polynomial of the first kind, Tₙ(cos t) = cos(n t)",
    " 1.0000,  0.5000, -0.5000",
)
chebyshev_polynomial_u = _row(
    "chebyshev_polynomial_u",
    "Chebyshev's polynomial of the second kind, Uₙ(cos t) = sin((n + 1) t) / sin(t)",
    "1., 1., 0.",
)
chebyshev_polynomial_v = _row(
    "chebyshev_polynomial_v",
    "Chebyshev's polynomial of the third kind, Vₙ(cos t) = cos((n + 1/2) t) / cos(t/2)",
    " 1.,  0., -1.",
)
chebyshev_polynomial_w = _row(
    "chebyshev_polynomial_w",
    "Chebyshev's polynomial of the fourth kind, Wₙ(cos t) = sin((n + 1/2) t) / sin(t/2)",
    "1., 2., 1.",
)
hermite_polynomial_h = _row(
    "hermite_polynomial_h", "Hermite's polynomial (the physicists'), Hₙ₊₁ = 2x Hₙ - 2n Hₙ₋₁", " 1.,  1., -1."
)
hermite_polynomial_he = _row(
    "hermite_polynomial_he",
    "Hermite's polynomial (the probabilists'), Heₙ₊₁ = x Heₙ - n Heₙ₋₁",
    " 1.0000,  0.5000, -0.7500",
)
laguerre_polynomial_l = _row(
    "laguerre_polynomial_l",
    "Laguerre's polynomial, (n + 1) Lₙ₊₁ = (2n + 1 - x) Lₙ - n Lₙ₋₁",
    "1.0000, 0.5000, 0.1250",
)
legendre_polynomial_p = _row(
    "legendre_polynomial_p",
    "Legendre's polynomial, (n + 1) Pₙ₊₁ = (2n + 1) x Pₙ - n Pₙ₋₁",
    " 1.0000,  0.5000, -0.1250",
)
shifted_chebyshev_polynomial_t = _row(
    "shifted_chebyshev_polynomial_t", "`chebyshev_polynomial_t` at 2x - 1", " 1.,  0., -1."
)
shifted_chebyshev_polynomial_u = _row(
    "shifted_chebyshev_polynomial_u", "`chebyshev_polynomial_u` at 2x - 1", " 1.,  0., -1."
)
shifted_chebyshev_polynomial_v = _row(
    "shifted_chebyshev_polynomial_v", "`chebyshev_polynomial_v` at 2x - 1", " 1., -1., -1."
)
shifted_chebyshev_polynomial_w = _row(
    "shifted_chebyshev_polynomial_w", "`chebyshev_polynomial_w` at 2x - 1", " 1.,  1., -1."
)
