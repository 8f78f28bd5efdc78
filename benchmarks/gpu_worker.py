"""The worker of `benchmarks.cuda`: like `benchmarks.worker`, with the rows of the GPU tables, timed with CUDA events.

Two environment variables configure it: BENCHMARK_DEVICE is the device of the rows, and BENCHMARK_TF32=1 allows
TensorFloat-32 for products of float32.
"""

from __future__ import annotations

import os
import time

from benchmarks import worker
from benchmarks.rows import Place


def allow_tf32(torch, allowed: bool) -> None:
    """Sets whether float32 products may use TensorFloat-32; by default torch's two settings for this differ."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = allowed


def seconds_per_step(cuda, step, count: int) -> float:
    """Returns the mean time of `count` steps between two events, by the GPU's clock."""
    first, last = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
    first.record()
    for _ in range(count):
        step()
    last.record()
    last.synchronize()
    return first.elapsed_time(last) / 1000 / count


class Worker(worker.Worker):
    """Runs the current row on a device."""

    def __init__(self, name: str, threads: int, clock: str):
        super().__init__(name, threads, clock)
        Place.device = os.environ.get("BENCHMARK_DEVICE", "cuda")
        self.on_gpu = Place.device.startswith("cuda")
        if self.on_gpu:
            allow_tf32(self.torch, os.environ.get("BENCHMARK_TF32", "0") == "1")

    def facts(self) -> dict:
        """Returns versions and the name of the GPU. Raises: RuntimeError if the library finds no GPU."""
        found = super().facts()
        if self.on_gpu:
            if not self.torch.cuda.is_available():
                raise RuntimeError(f"{self.name} finds no GPU")
            found["GPU"] = self.torch.cuda.get_device_name(0)
            if self.name == "tensorgrad":
                import cupy

                found["CuPy"] = cupy.__version__
            else:
                found["CUDA"] = self.torch.version.cuda
        return found

    def warm(self, seconds: float) -> dict:
        """Runs the step for some time, waiting for queued work. Returns the time per step."""
        self.step()
        self.wait()
        start, count, passed = time.perf_counter(), 0, 0.0
        while passed < seconds or not count:
            self.step()
            self.wait()
            count += 1
            passed = time.perf_counter() - start
        return {"seconds": passed / count}

    def time(self, count: int) -> dict:
        """Measures the mean time of `count` steps that run without waiting in between, by the GPU's clock."""
        if not self.on_gpu:
            return super().time(count)
        self.wait()
        return {"seconds": seconds_per_step(self.torch.cuda, self.step, count)}

    def wait(self) -> None:
        """Waits until all launched work is done."""
        if self.on_gpu:
            self.torch.cuda.synchronize()


if __name__ == "__main__":
    worker.main(Worker)
