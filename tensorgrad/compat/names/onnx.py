"""`torch.onnx`: exporting is not included; `export` raises an error."""

from __future__ import annotations

from typing import Any


def export(*args: Any, **options: Any) -> None:
    """Would export a model; instead, save its `state_dict` and export it with PyTorch.

    Raises:
        NotImplementedError: Always.

    >>> torch.onnx.export()
    Traceback (most recent call last):
    NotImplementedError: onnx.export is not included: torch.save the state_dict and export it with PyTorch
    """
    raise NotImplementedError("onnx.export is not included: torch.save the state_dict and export it with PyTorch")


def is_in_onnx_export() -> bool:
    """Returns whether an export is in progress: always False.

    >>> torch.onnx.is_in_onnx_export()
    False
    """
    return False
