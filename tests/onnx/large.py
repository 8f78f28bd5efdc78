"""Writes a model of more than 2 GB, which needs a second file for its weights, and has onnxruntime run it.

python -m tests.onnx.large   (some 8 GB of memory, and 2.3 GB on the disk for temporary files)
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np
import onnxruntime

import tensorgrad as torch
from tensorgrad import nn
from tensorgrad.onnx.protobuf import LARGEST_MESSAGE


def main() -> None:
    """Prints sizes, seconds, and the largest difference."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(23_500, 23_500), nn.ReLU(), nn.Linear(23_500, 3)).eval()
    given = torch.randn(2, 23_500)
    with torch.no_grad():
        expected = model(given).numpy()
    with tempfile.TemporaryDirectory() as folder:
        path, start = Path(folder) / "large.onnx", time.perf_counter()
        torch.onnx.export(model, (given,), path)
        seconds = time.perf_counter() - start
        small, large = path.stat().st_size, (Path(folder) / "large.onnx.data").stat().st_size
        assert large > LARGEST_MESSAGE > small, (small, large)
        print(f"written in {seconds:.1f} s: {small:,} bytes, and {large:,} bytes of weights")
        with torch.no_grad():
            again = torch.onnx.load(path)(given).numpy()
        print(f"read here: differs by {np.abs(again - expected).max():.1e}")
        del model, again
        (found,) = onnxruntime.InferenceSession(path).run(None, {"input": given.numpy()})
        print(f"onnxruntime: differs by {np.abs(found - expected).max():.1e}, of {np.abs(expected).max():.2f} at most")


if __name__ == "__main__":
    main()
