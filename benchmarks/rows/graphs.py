"""Training steps of small models with a CUDA graph, against torch without one (and `graphs_both.py`: against its own).

These steps are limited by the time that the host needs to launch kernels, which a graph takes once. On a device without
graphs, both libraries run the steps as they are.
"""

from __future__ import annotations

import warnings

from benchmarks.rows import Place, Row, models, placed
from benchmarks.rows.training import digits, sgd, text

WARM = 3  # steps before the capture, in both libraries


def adam(torch, parameters, captured: bool):
    """Adam, as for small networks."""
    return torch.optim.Adam(parameters, lr=1e-3, capturable=captured)


def adamw(torch, parameters, captured: bool):
    """AdamW, as for transformers."""
    return torch.optim.AdamW(parameters, lr=1e-3, capturable=captured)


def plain_sgd(torch, parameters, captured: bool):
    """Plain SGD, which has no state."""
    return sgd(torch, parameters)


def captured(torch, step):
    """Returns a function that replays a step, which runs a few times first, on another stream."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "This instance was constructed with capturable=True")
        for _ in range(WARM):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()

    def replay(reads=step):  # the graph does not keep the memory that it reads
        graph.replay()
        return loss

    return replay


def graphed(both: bool, make_model, make_batch, make_optimizer, clip: float | None = None):
    """Returns the build function of a row, whose step uses a graph in tensorgrad, and in torch if `both`."""

    def build(torch, model=None, **sizes):
        torch.manual_seed(0)
        network, (x, y) = placed(make_model(torch, **(model or {}))), make_batch(torch, **sizes)
        use = Place.device.startswith("cuda") and (both or torch.__name__ == "tensorgrad")
        optimizer = make_optimizer(torch, network.parameters(), use)
        function = torch.nn.CrossEntropyLoss()

        def step():
            output = network(x)
            loss = function(output.view(-1, output.shape[-1]), y)
            optimizer.zero_grad()
            loss.backward()
            if clip is not None:
                torch.nn.utils.clip_grad_norm_(network.parameters(), clip)
            optimizer.step()
            return loss

        if use:
            run = captured(torch, step)
        else:
            run = step
            for _ in range(WARM):
                step()

        def results():
            losses = [run().detach().clone() for _ in range(3)]
            return [*losses, *(parameter.grad for parameter in network.parameters())]

        return run, results

    return build


def rows(both: bool) -> list[Row]:
    """Returns the rows; `both`: torch uses a graph, too."""
    return [
        Row(
            "MLP 784-128-10, batch 32, SGD",
            graphed(both, models.mlp, digits, plain_sgd),
            {"batch": 32, "shape": (784,)},
            {"batch": 4, "shape": (16,), "model": {"inputs": 16, "hidden": 8}},
            1e-3,
        ),
        Row(
            "MNIST ConvNet, batch 32, Adam",
            graphed(both, models.convnet, digits, adam),
            {"batch": 32},
            {"batch": 2},
            1e-2,
        ),
        Row(
            "GPT 4×128, context 64, batch 8, AdamW",
            graphed(both, models.gpt, text, adamw, clip=1.0),
            {"batch": 8, "length": 64},
            {"batch": 2, "length": 8, "model": {"layers": 2, "width": 16, "heads": 2, "context": 8}},
            1e-2,
        ),
        Row(
            "LSTM characters, 32×64, Adam",
            graphed(both, models.lstm, text, adam, clip=1.0),
            {"batch": 32, "length": 64},
            {"batch": 2, "length": 8, "model": {"embedded": 8, "width": 16}},
            1e-2,
        ),
    ]


ROWS = rows(both=False)
