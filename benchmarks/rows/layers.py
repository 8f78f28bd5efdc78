"""Other common layers and losses."""

from __future__ import annotations

from benchmarks.rows import both, drawn, placed, whole


def of_module(make, *shape: int):
    """Returns a row's `make` from a function that creates the module, and the shape of its float input."""

    def build(torch, **sizes):
        given = tuple(sizes.values()) or shape
        module, x = placed(make(torch, *given)), drawn(torch, *given, requires_grad=True)
        return lambda: module(x), [x, *module.parameters()]

    return build


def cross_entropy(torch, rows: int, classes: int):
    """The mean loss over the rows."""
    x, y = drawn(torch, rows, classes, requires_grad=True), whole(torch, classes, rows)
    function = torch.nn.CrossEntropyLoss()
    return lambda: function(x, y), [x]


def embedding(torch, entries: int, width: int, batch: int, length: int):
    """Looks up rows of a table by index."""
    module, numbers = placed(torch.nn.Embedding(entries, width)), whole(torch, entries, batch, length)
    return lambda: module(numbers), list(module.parameters())


def lstm(torch, batch: int, length: int, inputs: int, width: int):
    """One layer over whole sequences."""
    module = placed(torch.nn.LSTM(inputs, width, batch_first=True))
    x = drawn(torch, batch, length, inputs, requires_grad=True)
    return lambda: module(x)[0], [x, *module.parameters()]


def attention(torch, batch: int, heads: int, length: int, width: int):
    """Causal attention of queries, keys and values."""
    q, k, v = (drawn(torch, batch, heads, length, width, seed=seed, requires_grad=True) for seed in range(3))
    return lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True), [q, k, v]


IMAGES = {"batch": 32, "channels": 64, "height": 32, "width": 32}
FEW_IMAGES = {"batch": 4, "channels": 16, "height": 16, "width": 16}

ROWS = [
    *both(
        "LayerNorm 2048×512",
        of_module(lambda torch, rows, width: torch.nn.LayerNorm(width)),
        {"rows": 2048, "width": 512},
    ),
    *both(
        "BatchNorm2d 32×64×32²",
        of_module(lambda torch, n, c, h, w: torch.nn.BatchNorm2d(c)),
        IMAGES,
        FEW_IMAGES,
    ),
    *both(
        "GELU 2048×2048",
        of_module(lambda torch, rows, columns: torch.nn.GELU()),
        {"rows": 2048, "columns": 2048},
        {"rows": 256, "columns": 256},
    ),
    *both("CrossEntropy 1024×1000", cross_entropy, {"rows": 1024, "classes": 1000}),
    *both(
        "CrossEntropy 4096×50257",
        cross_entropy,
        {"rows": 4096, "classes": 50257},
        {"rows": 8, "classes": 50257},
        heavy=True,
    ),
    *both(
        "Embedding 10000×256, 64×128 numbers",
        embedding,
        {"entries": 10000, "width": 256, "batch": 64, "length": 128},
    ),
    *both(
        "MaxPool2d(2) 32×64×32²",
        of_module(lambda torch, n, c, h, w: torch.nn.MaxPool2d(2)),
        IMAGES,
        FEW_IMAGES,
    ),
    *both(
        "AvgPool2d(2) 32×64×32²",
        of_module(lambda torch, n, c, h, w: torch.nn.AvgPool2d(2)),
        IMAGES,
        FEW_IMAGES,
    ),
    *both(
        "LSTM 32×64×128→256",
        lstm,
        {"batch": 32, "length": 64, "inputs": 128, "width": 256},
        {"batch": 4, "length": 8, "inputs": 128, "width": 256},
    ),
    *both(
        "attention 8×8×512×64, causal",
        attention,
        {"batch": 8, "heads": 8, "length": 512, "width": 64},
        {"batch": 2, "heads": 2, "length": 128, "width": 64},
    ),
]
