"""Exports a program, and compares what onnxruntime computes with what the program does."""

import numpy as np
import pytest

import tensorgrad as torch
from tensorgrad.capture.values import tensors

NEEDS = "onnx and onnxruntime check exported models (extra test-tools)"


def check(program, args, *others, tolerance=1e-5, results=True, **options):
    """Exports `program` with `args`, and compares it on these and on other arguments. Returns what was exported."""
    onnx = pytest.importorskip("onnx", reason=NEEDS)
    pytest.importorskip("onnxruntime", reason=NEEDS)
    exported = torch.onnx.export(program, args, **options)
    onnx.checker.check_model(exported.model_proto, full_check=True)
    for given in (args, *others) if results else ():
        with torch.no_grad():
            expected = list(tensors(program(*given)))
        found = exported(*given)
        assert len(found) == len(expected)
        for a, b in zip(found, expected, strict=True):
            assert (a.shape, a.dtype) == (b.shape, b.dtype)
            scale = 1 if not b.is_floating_point() or not b.numel() else max(1.0, float(b.abs().nan_to_num().max()))
            np.testing.assert_allclose(a.numpy(), b.detach().numpy(), rtol=tolerance, atol=tolerance * scale)
    return exported


def operators(exported):
    """The operators of an exported program, in order."""
    return [node.operator for node in exported.model.graph.nodes]
