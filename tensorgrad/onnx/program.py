"""`ONNXProgram`: an exported program, to save or to run."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from tensorgrad.capture.values import tensors
from tensorgrad.onnx.errors import OnnxExporterError
from tensorgrad.onnx.model import Model, TensorData, ValueInfo
from tensorgrad.onnx.protobuf import LARGEST_MESSAGE, model_message, raw
from tensorgrad.serialization.archive import replacing
from tensorgrad.tensor import Tensor

SMALL = 256  # bytes of a tensor that stays in the model's own file
PAGE = 4096  # large tensors begin at a multiple of this many bytes, so that their file can be mapped


class ONNXProgram:
    """A program in ONNX's form.

    Attributes:
        model: what its file says (`tensorgrad.onnx.model.Model`).

    Call it with the arguments of the program to run it with onnxruntime.

    >>> program = torch.onnx.export(torch.nn.Linear(2, 1), (torch.ones(1, 2),), verbose=False)
    >>> program.model.graph.nodes[0].operator, [tensor.name for tensor in program.model.graph.initializers]
    ('Gemm', ['weight', 'bias'])
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        self._session: Any = None

    def __repr__(self) -> str:
        graph = self.model.graph
        shown = [f"{v.name}: {list(v.shape or ())}" for v in (*graph.inputs, *graph.outputs)]
        n = len(graph.inputs)
        return f"ONNXProgram({', '.join(shown[:n])} -> {', '.join(shown[n:])}, {len(graph.nodes)} nodes)"

    @property
    def model_proto(self) -> Any:
        """The model as an object of the package `onnx`.

        Raises: ImportError if that is not installed.
        """
        try:
            import onnx
        except ImportError as error:
            raise ImportError(
                "ONNXProgram.model_proto: the package onnx is not installed; `save` and `bytes(program)` do not need it"
            ) from error
        return onnx.load_model_from_string(bytes(self))

    def __bytes__(self) -> bytes:
        """The content of a file with everything in it.

        Raises: ValueError if it is more than 2 GB, which a file of its own for the weights has to hold.
        """
        message = model_message(self.model)
        if message.size > LARGEST_MESSAGE:
            raise ValueError(f"onnx: a model of {message.size} bytes needs a file for its weights: use save")
        return b"".join(message.parts)

    def save(
        self,
        destination: str | os.PathLike | Any,
        *,
        include_initializers: bool = True,
        keep_initializers_as_inputs: bool = False,
        external_data: bool | None = None,
    ) -> None:
        """Writes the model to a file.

        Args:
            destination: a path, or a file that is open for writing.
            include_initializers: whether the weights are written. Without them they are inputs of the model.
            keep_initializers_as_inputs: whether the weights are inputs of the model, too.
            external_data: whether weights go into a second file, `<name>.data`. By default they do if the model would
                be larger than 2 GB.

        Nothing is left behind if writing fails.
        """
        model = self.model
        if not include_initializers or keep_initializers_as_inputs:
            model = _with_inputs(model, include_initializers)
        message = model_message(model)
        if external_data is None:
            external_data = message.size > LARGEST_MESSAGE
        if hasattr(destination, "write"):
            if message.size > LARGEST_MESSAGE:
                raise ValueError(f"onnx: a model of {message.size} bytes needs a path: its weights are a second file")
            for part in message.parts:
                destination.write(part)
            return
        path = Path(os.fspath(destination))
        files: list[tuple[Path, Any]] = []
        if external_data:
            places, blocks = _placed(model, f"{path.name}.data")
            if blocks:
                message = model_message(model, lambda tensor: places.get(tensor.name))
                files.append((path.with_name(f"{path.name}.data"), blocks))
        if message.size > LARGEST_MESSAGE:
            raise OnnxExporterError(f"onnx: the model without its weights has {message.size} bytes, more than 2 GB")
        files.append((path, message.parts))
        _write(files)

    def __call__(self, *args: Any, **kwargs: Any) -> list[Tensor]:
        """Runs the program with onnxruntime, and returns its results as a list of tensors.

        Raises: ImportError if onnxruntime is not installed.
        """
        import tensorgrad

        if self._session is None:
            self.initialize_inference_session()
        names = [value.name for value in self.model.graph.inputs]
        given = [np.asarray(t.detach().cpu()._array, order="C") for t in tensors((args, kwargs))]
        if len(given) != len(names):
            raise ValueError(f"ONNXProgram: takes {len(names)} tensors ({', '.join(names)}), but got {len(given)}")
        found = self._session.run(None, dict(zip(names, given, strict=True)))
        return [tensorgrad.from_numpy(np.array(array)) for array in found]

    def initialize_inference_session(self, initializer: Any = None) -> None:
        """Makes the session that runs the program: by onnxruntime, or by a function that gets the file's content."""
        if initializer is None:
            try:
                import onnxruntime
            except ImportError as error:
                raise ImportError("ONNXProgram: running it needs the package onnxruntime") from error

            def initializer(content: bytes) -> Any:
                return onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])

        self._session = initializer(bytes(self))

    def release(self) -> None:
        """Forgets the session."""
        self._session = None

    def optimize(self) -> None:
        """Does nothing: constants are folded, and what is not used is left out, when a program is exported."""


def _with_inputs(model: Model, weights: bool) -> Model:
    from dataclasses import replace

    graph = model.graph
    inputs = [ValueInfo(t.name, t.element_type, t.array.shape) for t in graph.initializers]
    kept = graph.initializers if weights else []
    return replace(model, graph=replace(graph, inputs=[*graph.inputs, *inputs], initializers=kept))


def _placed(model: Model, name: str) -> tuple[dict[str, tuple[str, int, int]], list[Any]]:
    """Where each large tensor goes in a file of its own, and the blocks of that file."""
    places: dict[str, tuple[str, int, int]] = {}
    blocks: list[Any] = []
    at = 0
    tensor: TensorData
    for tensor in model.graph.initializers:
        if tensor.array.nbytes < SMALL:
            continue
        gap = -at % PAGE if tensor.array.nbytes >= PAGE else -at % 16
        if gap:
            blocks.append(bytes(gap))
        places[tensor.name] = name, at + gap, tensor.array.nbytes
        blocks.append(raw(tensor.array))
        at += gap + tensor.array.nbytes
    return places, blocks


def _write(files: list[tuple[Path, Any]]) -> None:
    """Writes files; each takes the place of an old one when all are complete."""
    with ExitStack() as stack:
        for path, parts in files:
            file = stack.enter_context(replacing(path))
            for part in parts:
                file.write(part)
