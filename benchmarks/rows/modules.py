"""Four modules at three sizes each, as in a network during training: the graph is recorded."""

from __future__ import annotations

from benchmarks.rows import both, drawn, placed


def linear(torch, batch: int, inputs: int, outputs: int):
    """A matrix product and a bias."""
    module, x = placed(torch.nn.Linear(inputs, outputs)), drawn(torch, batch, inputs, requires_grad=True)
    return lambda: module(x), [x, *module.parameters()]


def conv2d(torch, batch: int, channels: int, size: int, outputs: int):
    """A 3×3 convolution that keeps the size."""
    module = placed(torch.nn.Conv2d(channels, outputs, 3, padding=1))
    x = drawn(torch, batch, channels, size, size, requires_grad=True)
    return lambda: module(x), [x, *module.parameters()]


def attention(torch, batch: int, length: int, width: int, heads: int):
    """Self-attention with the module's default arguments, which average the weights over the heads."""
    module = placed(torch.nn.MultiheadAttention(width, heads, batch_first=True))
    x = drawn(torch, batch, length, width, requires_grad=True)
    return lambda: module(x, x, x)[0], [x, *module.parameters()]


def softmax(torch, rows: int, columns: int):
    """Softmax along the last dimension."""
    module, x = torch.nn.Softmax(dim=-1), drawn(torch, rows, columns, requires_grad=True)
    return lambda: module(x), [x]


ROWS = [
    row
    for rows in (
        *(
            both(f"Linear {n}×{i}→{o}", linear, {"batch": n, "inputs": i, "outputs": o})
            for n, i, o in ((4, 1024, 1024), (32, 64, 128), (64, 1024, 2048), (128, 2048, 4096))
        ),
        *(
            both(
                f"Conv2d {n}×{c}×{s}²→{o}",
                conv2d,
                {"batch": n, "channels": c, "size": s, "outputs": o},
                {"batch": 2, "channels": c, "size": min(s, 32), "outputs": o},
            )
            for n, c, s, o in ((4, 3, 32, 16), (8, 32, 64, 64), (8, 64, 128, 128))
        ),
        *(
            both(f"MultiheadAttention {n}×{t}×{w} h{h}", attention, {"batch": n, "length": t, "width": w, "heads": h})
            for n, t, w, h in ((16, 32, 64, 4), (32, 64, 128, 8), (32, 128, 256, 8))
        ),
        *(
            both(f"Softmax {n}×{c}", softmax, {"rows": n, "columns": c})
            for n, c in ((128, 64), (512, 256), (1024, 512))
        ),
    )
    for row in rows
]
