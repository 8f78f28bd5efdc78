"""`torch.onnx`: exporting is not included; programs that try are told so."""

from __future__ import annotations

from typing import Any


def export(*args: Any, **options: Any) -> None:
    """Raises: NotImplementedError. A `state_dict` saved here can be exported by a program that runs under PyTorch.

    >>> import tensorgrad as torch
    >>> torch.onnx.export()
    Traceback (most recent call last):
    NotImplementedError: onnx.export is not included: torch.save the state_dict and export it with PyTorch
    """
    raise NotImplementedError("onnx.export is not included: torch.save the state_dict and export it with PyTorch")


def is_in_onnx_export() -> bool:
    """Whether an export is going on: never.

    >>> import tensorgrad as torch
    >>> torch.onnx.is_in_onnx_export()
    False
    """
    return False
