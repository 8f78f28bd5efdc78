"""Training steps at sizes typical for a GPU. The first row is small, so its time is dominated by launches."""

from __future__ import annotations

from benchmarks.rows import Row, models
from benchmarks.rows.training import adam, adamw, digits, momentum, sgd, text, training

# GPT-2 with 124 million parameters (Radford et al., 2019).
GPT2 = {"layers": 12, "width": 768, "heads": 12, "context": 1024, "characters": 50257, "tied": True}
TINY_GPT = {"layers": 2, "width": 16, "heads": 2, "context": 8, "characters": 65, "tied": True}

ROWS = [
    Row(
        "MLP 784-128-10, batch 32, SGD",
        training(models.mlp, digits, sgd),
        {"batch": 32, "shape": (784,)},
        {"batch": 4, "shape": (16,), "model": {"inputs": 16, "hidden": 8}},
        1e-3,
    ),
    Row(
        "MLP 784-4096-10, batch 4096, SGD",
        training(models.mlp, digits, sgd),
        {"batch": 4096, "shape": (784,), "model": {"hidden": 4096}},
        {"batch": 40, "shape": (16,), "model": {"inputs": 16, "hidden": 40}},
        1e-3,
    ),
    Row(
        "MNIST ConvNet, batch 512, Adam",
        training(models.convnet, digits, adam),
        {"batch": 512},
        {"batch": 2},
        1e-2,
    ),
    Row(
        "MNIST ViT, batch 512, AdamW",
        training(models.vit, digits, adamw),
        {"batch": 512},
        {"batch": 2, "model": {"width": 16}},
        1e-2,
    ),
    Row(
        "ResNet-18 32×32, batch 256, SGD",
        training(models.resnet18, digits, momentum),
        {"batch": 256, "shape": (3, 32, 32)},
        {"batch": 4, "shape": (3, 8, 8), "model": {"width": 4}},
        0.2,  # as in training.py: inputs of ReLUs on the other side of 0
    ),
    Row(
        "ResNet-18 32×32, batch 256, SGD, bfloat16",
        training(models.resnet18, digits, momentum, autocast="bfloat16"),
        {"batch": 256, "shape": (3, 32, 32)},
        {"batch": 4, "shape": (3, 8, 8), "model": {"width": 4}},
        0.5,
    ),
    Row(
        "GPT 4×128, context 64, batch 64, AdamW",
        training(models.gpt, text, adamw, clip=1.0),
        {"batch": 64, "length": 64},
        {"batch": 2, "length": 8, "model": {**TINY_GPT, "tied": False}},
        1e-2,
    ),
    Row(
        "LSTM characters, 128×64, Adam",
        training(models.lstm, text, adam, clip=1.0),
        {"batch": 128, "length": 64},
        {"batch": 2, "length": 8, "model": {"embedded": 8, "width": 16}},
        1e-2,
    ),
    Row(
        "GPT-2 124M, context 1024, batch 8, AdamW, bfloat16",
        training(models.gpt, text, adamw, clip=1.0, autocast="bfloat16"),
        {"batch": 8, "length": 1024, "characters": 50257, "model": GPT2},
        {"batch": 2, "length": 8, "model": TINY_GPT},
        0.1,
        heavy=True,
    ),
]
