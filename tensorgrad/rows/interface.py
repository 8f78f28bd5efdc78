"""The interface of a kernel that brings its own derivative."""

from __future__ import annotations


class Op:
    """A kernel for one op on one device; register it with `OpDispatch.register(op, device)`.

    Subclassing is optional: any class with a static `forward` works, and so does a plain function, used as `forward`.
    """

    @staticmethod
    def forward(*arrays, **params):
        """Computes the op on the device's arrays.

        Called with the op's parameters in the order of its row, already checked and normalized. Returns a new array
        (a tuple of them for several outputs), or `NotImplemented` to let the general kernel run.
        """
        raise NotImplementedError("a kernel class implements forward")

    # backward = staticmethod(function), optional. Its parameters are named like a formula's in the op's row: `g`
    # (the gradient of the output), `out`, and those inputs and parameters that the row's own formulas save (of an op
    # with a twin: all of them, and its cache, which `forward` then returns after the output). It returns one array (or
    # None) per tensor input. Where it is missing, and whenever the backward
    # pass is itself recorded, the row's formulas or its twin are used: second derivatives never depend on it.
