"""The worker of `benchmarks.server`: threads that ask a model, each again as soon as it is answered."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from typing import Any

from benchmarks import worker
from benchmarks.rows.inference import SERVED, served

CALLS = 8  # after which a region has its plan


def asked(torch, name: str, plan: bool) -> Callable[[], Any]:
    """Returns the function that asks a model of tensorgrad or torch, as it is or compiled."""
    model, x = served(torch, name), SERVED[name](torch)
    if plan:
        model = torch.compile(model, fullgraph=True)  # an error, should there be none

    def ask():
        with torch.inference_mode():
            return model(x)

    for _ in range(CALLS if plan else 0):
        ask()
    return ask


def exported(onnxruntime, name: str, threads: int) -> Callable[[], Any]:
    """Returns the function that asks a model which torch has exported, run by onnxruntime."""
    import torch

    torch.backends.mha.set_fastpath_enabled(False)  # one op that cannot be exported
    file, x = io.BytesIO(), SERVED[name](torch)
    torch.onnx.export(served(torch, name), (x,), file, dynamo=False, input_names=["x"])
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(file.getvalue(), options, providers=["CPUExecutionProvider"])
    array = x.numpy()
    return lambda: session.run(None, {"x": array})


class Worker(worker.Worker):
    """Runs clients; a row is the name of a model, their number, and whether a plan answers: "mlp 4 plan"."""

    def __init__(self, name: str, threads: int, clock: str):
        super().__init__(name, threads, clock)
        self.count = threads

    def facts(self) -> dict:
        """Returns the version of the library."""
        version = getattr(self.torch, "version", None)
        return {self.name: getattr(version, "tensorgrad", self.torch.__version__)}

    def each(self, row: str, seconds: float) -> dict:
        """Measures each answer for `seconds`, at least one a client; all clients begin together."""
        name, clients, *plan = row.split()
        ask = self.steps.get(name)
        if ask is None:
            onnx = self.name == "onnxruntime"
            ask = exported(self.torch, name, self.count) if onnx else asked(self.torch, name, bool(plan))
            self.steps[name] = ask
            worker.settle(ask)
        gate, clock = threading.Barrier(int(clients)), self.clock
        times: list[list[float]] = [[] for _ in range(int(clients))]

        def client(own: list[float]) -> None:
            gate.wait()
            start = before = clock()
            while before - start < seconds or not own:
                ask()
                now = clock()
                own.append(now - before)
                before = now

        running = [threading.Thread(target=client, args=(own,)) for own in times]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        return {"times": [one for own in times for one in own]}


if __name__ == "__main__":
    worker.main(Worker)
