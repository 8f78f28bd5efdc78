"""`torch.onnx`: models leave as ONNX files, without the packages onnx or onnxscript.

`export` records a program (`tensorgrad.capture`), translates its ops (`translations/`), and writes the file
(`protobuf.py`). `load` reads one as a module that runs and trains. See docs/onnx.md in the repository.
"""

from tensorgrad.onnx import errors
from tensorgrad.onnx.errors import OnnxExporterError
from tensorgrad.onnx.export import (
    OperatorExportTypes,
    TrainingMode,
    export,
    is_in_onnx_export,
    register_custom_op_symbolic,
    unregister_custom_op_symbolic,
)
from tensorgrad.onnx.loading import load
from tensorgrad.onnx.program import ONNXProgram

__all__ = [
    "ONNXProgram", "OnnxExporterError", "OperatorExportTypes", "TrainingMode", "errors", "export", "is_in_onnx_export",
    "load", "register_custom_op_symbolic", "unregister_custom_op_symbolic",
]  # fmt: skip
