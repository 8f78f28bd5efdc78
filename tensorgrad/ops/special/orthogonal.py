"""Orthogonal polynomials, found in `torch.special`; no derivatives, as in PyTorch.

The degree is a tensor or number, promoted together with the argument. Fractional degrees are truncated; negative ones
give 0.
"""

from __future__ import annotations

from tensorgrad.dispatch.kinds import pointwise
from tensorgrad.ops.special.special import SPECIAL, real_only

_DOC = """{text}, elementwise; either may be a number. Not differentiable.

>>> torch.special.{name}(torch.tensor([0.5]), torch.tensor([0, 1, 2]))
tensor([{values}])"""


def _row(name: str, text: str, values: str):
    """Declares a row whose example shows the values at 1/2 for the degrees 0, 1, 2."""
    SPECIAL[name] = pointwise(f"special_{name}(x, n)", f"orthogonal.{name}", numbers="all", rule="float", where=(),
                              in_place=False, prepare=real_only(name, half=False),
                              doc=_DOC.format(name=name, text=text, values=values))  # fmt: skip
    return SPECIAL[name]


chebyshev_polynomial_t = _row(
    "chebyshev_polynomial_t",
    "The Chebyshev polynomial of the first kind, Tₙ(cos t) = cos(n t)",
    " 1.0000,  0.5000, -0.5000",
)
chebyshev_polynomial_u = _row(
    "chebyshev_polynomial_u",
    "The Chebyshev polynomial of the second kind, Uₙ(cos t) = sin((n + 1) t) / sin(t)",
    "1., 1., 0.",
)
chebyshev_polynomial_v = _row(
    "chebyshev_polynomial_v",
    "The Chebyshev polynomial of the third kind, Vₙ(cos t) = cos((n + 1/2) t) / cos(t/2)",
    " 1.,  0., -1.",
)
chebyshev_polynomial_w = _row(
    "chebyshev_polynomial_w",
    "The Chebyshev polynomial of the fourth kind, Wₙ(cos t) = sin((n + 1/2) t) / sin(t/2)",
    "1., 2., 1.",
)
hermite_polynomial_h = _row(
    "hermite_polynomial_h", "The (physicists') Hermite polynomial, Hₙ₊₁ = 2x Hₙ - 2n Hₙ₋₁", " 1.,  1., -1."
)
hermite_polynomial_he = _row(
    "hermite_polynomial_he",
    "The (probabilists') Hermite polynomial, Heₙ₊₁ = x Heₙ - n Heₙ₋₁",
    " 1.0000,  0.5000, -0.7500",
)
laguerre_polynomial_l = _row(
    "laguerre_polynomial_l",
    "The Laguerre polynomial, (n + 1) Lₙ₊₁ = (2n + 1 - x) Lₙ - n Lₙ₋₁",
    "1.0000, 0.5000, 0.1250",
)
legendre_polynomial_p = _row(
    "legendre_polynomial_p",
    "The Legendre polynomial, (n + 1) Pₙ₊₁ = (2n + 1) x Pₙ - n Pₙ₋₁",
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
