"""The interface of a kernel that brings its own derivative."""

from __future__ import annotations


class Op:
    """A kernel for one op on one device; register it with `OpDispatch.register(op, device)`.

    Subclassing is optional: any class with a static `forward` will do, and a plain function is a `forward`.
    """

    @staticmethod
    def forward(*arrays, **params):
        """Computes the op on the device's plain arrays.

        Called with the op's parameters in the order of its row, already checked and normalised. Returns a fresh
        array (or a tuple of them, for several outputs), or `NotImplemented` to leave the call to the general kernel.
        """
        raise NotImplementedError("a kernel class implements forward")

    # backward = staticmethod(function), optional. Its parameters are named like a formula's in the op's row: `g`
    # (the gradient of the output), `out`, and those inputs and parameters that the row's own formulas save (of an op
    # with a twin: all of them, and its cache, which `forward` then returns after the output). It returns one array (or
    # None) per tensor input. Where it is missing, the row's formulas or its twin are used; so they are when the
    # backward pass is itself recorded: second derivatives never depend on it.
