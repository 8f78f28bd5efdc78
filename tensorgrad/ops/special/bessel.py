"""Bessel functions of order 0 and 1, and Airy's Ai; no derivatives, as in PyTorch. They are in `torch.special`."""

from __future__ import annotations

from tensorgrad.dispatch.kinds import pointwise
from tensorgrad.ops.special.special import SPECIAL, real_only


def _row(name: str, text: str, at_one: str, argument: str = "input"):
    """Declares a row whose example shows the value at 1. `argument`: PyTorch's name for the argument."""
    doc = f"{text}\n\n>>> torch.special.{name}(torch.tensor([1.0]))\ntensor([{at_one}])"
    SPECIAL[name] = pointwise(f"special_{name}({argument})", f"bessel.{name}", rule="float", where=(), in_place=False,
                              prepare=real_only(name, half=False), doc=doc)  # fmt: skip
    return SPECIAL[name]


airy_ai = _row("airy_ai", "The Airy function Ai: the solution of y'' = x y that decays for large x.", "0.1353", "x")
bessel_j0 = _row("bessel_j0", "The Bessel function of the first kind, of order 0.", "0.7652")
bessel_j1 = _row("bessel_j1", "The Bessel function of the first kind, of order 1.", "0.4401")
bessel_y0 = _row("bessel_y0", "The Bessel function of the second kind, of order 0: -∞ at 0, NaN below.", "0.0883")
bessel_y1 = _row("bessel_y1", "The Bessel function of the second kind, of order 1: -∞ at 0, NaN below.", "-0.7812")
modified_bessel_i0 = _row("modified_bessel_i0", "The modified Bessel function of the first kind, of order 0.", "1.2661")
modified_bessel_i1 = _row("modified_bessel_i1", "The modified Bessel function of the first kind, of order 1.", "0.5652")
modified_bessel_k0 = _row(
    "modified_bessel_k0", "The modified Bessel function of the second kind, of order 0: ∞ at 0, NaN below.", "0.4210"
)
modified_bessel_k1 = _row(
    "modified_bessel_k1", "The modified Bessel function of the second kind, of order 1: ∞ at 0, NaN below.", "0.6019"
)
scaled_modified_bessel_k0 = _row("scaled_modified_bessel_k0", "exp(x) modified_bessel_k0(x).", "1.1445", "x")
scaled_modified_bessel_k1 = _row("scaled_modified_bessel_k1", "exp(x) modified_bessel_k1(x).", "1.6362", "x")
spherical_bessel_j0 = _row("spherical_bessel_j0", "sin(x) / x, 1 at 0.", "0.8415", "x")
