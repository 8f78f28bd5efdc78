"""Inference on one example, as in a service: `eval()`, no graph."""

from __future__ import annotations

from benchmarks.rows import Row, drawn, models, placed, whole


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


ROWS = [
    Row("MLP 784-128-10", inference(models.mlp, lambda torch: drawn(torch, 1, 784)), is_small_model=True),
    Row("MNIST ConvNet", inference(models.convnet, lambda torch: drawn(torch, 1, 1, 28, 28)), is_small_model=True),
    Row("GPT 4×128, context 64", inference(models.gpt, lambda torch: whole(torch, 65, 1, 64)), is_small_model=True),
]
