"""Formulas for inputs that PyTorch does not differentiate: asking for the gradient is an error, not silence."""

from __future__ import annotations


def no_derivative(name: str):
    """A formula that raises RuntimeError: for ops without an entry in PyTorch's derivatives."""

    def formula(g):
        raise RuntimeError(f"derivative for aten::{name} is not implemented")

    return formula


def not_implemented(what: str):
    """A formula that raises NotImplementedError: for derivatives that PyTorch lists as not implemented."""

    def formula(g):
        raise NotImplementedError(f"the derivative for '{what}' is not implemented.")

    return formula
