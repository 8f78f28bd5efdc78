"""`torch.onnx.errors`: what goes wrong in an export."""

from __future__ import annotations


class OnnxExporterError(RuntimeError):
    """A program could not be exported.

    >>> issubclass(torch.onnx.errors.UnsupportedOperatorError, torch.onnx.OnnxExporterError)
    True
    """


class OnnxExporterWarning(UserWarning):
    """What a user of an exported program should know."""


class UnsupportedOperatorError(OnnxExporterError):
    """An operator has no translation to ONNX."""


class SymbolicValueError(OnnxExporterError):
    """A size or a value depends on the input in a way that the exported program cannot express."""


class InvalidModelError(OnnxExporterError):
    """A file is not an ONNX model, or not one that can be run here."""
