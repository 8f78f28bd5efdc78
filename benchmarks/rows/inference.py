"""Inference on one example, as in a service: `eval()`, no graph."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.rows import Row, drawn, models, placed, whole

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "serve.py"
SERVED = {
    "mlp": lambda torch: drawn(torch, 1, 784),
    "convnet": lambda torch: drawn(torch, 1, 1, 28, 28),
    "transformer": lambda torch: whole(torch, 1000, 1, 32) + (whole(torch, 1000, 1, 32) == 0),  # no padding
}


def inference(make_model, make_input):
    """Returns the build function of a row."""

    def build(torch):
        torch.manual_seed(0)
        model, x = placed(make_model(torch)).eval(), make_input(torch)

        def step():
            with torch.no_grad():
                return model(x)

        return step, lambda: [step()]

    return build


def served(torch, name: str):
    """Returns a model of `examples/serve.py`, made by either library."""
    scope = {"torch": torch, "__name__": "serve", "__file__": str(EXAMPLE)}
    exec(compile(EXAMPLE.read_text(encoding="utf-8").partition("\n")[2], str(EXAMPLE), "exec"), scope)
    torch.manual_seed(0)
    return placed(scope["make_models"]()[name])


def two_clients(torch):
    """Returns the build's step: two threads ask the small transformer at the same time, as those of a server do."""
    model, x, pool = served(torch, "transformer"), SERVED["transformer"](torch), ThreadPoolExecutor(2)

    def answer(_):
        with torch.no_grad():
            return model(x)

    def step():
        return list(pool.map(answer, range(2)))

    return step, step


ROWS = [
    Row("MLP 784-128-10", inference(models.mlp, lambda torch: drawn(torch, 1, 784)), is_small_model=True),
    Row("MNIST ConvNet", inference(models.convnet, lambda torch: drawn(torch, 1, 1, 28, 28)), is_small_model=True),
    Row("GPT 4×128, context 64", inference(models.gpt, lambda torch: whole(torch, 65, 1, 64)), is_small_model=True),
    Row("transformer 4×256, two clients at once", two_clients),
]
