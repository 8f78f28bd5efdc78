"""Formulas for inputs whose derivative PyTorch leaves out: asking for it is an error, not silence."""

from __future__ import annotations


def no_derivative(name: str):
    """For ops of which PyTorch says nothing about derivatives: RuntimeError."""

    def formula(g):
        raise RuntimeError(f"derivative for aten::{name} is not implemented")

    return formula


def not_implemented(what: str):
    """For what PyTorch lists as not implemented: NotImplementedError."""

    def formula(g):
        raise NotImplementedError(f"the derivative for '{what}' is not implemented.")

    return formula
