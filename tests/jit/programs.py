"""Modules that PyTorch scripts or traces, with their inputs: what a table of tests saves, and loads here."""

import torch
from torch import nn
from torch.nn import functional as F

from tests.jit.script_programs import Color, make


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden, self.out, self.drop = nn.Linear(6, 8), nn.Linear(8, 3), nn.Dropout(0.0)

    def forward(self, x):
        return self.out(self.drop(torch.relu(self.hidden(x))))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, activation="gelu")
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.embedding = nn.Embedding(10, 8)

    def forward(self, tokens):
        return self.encoder(self.embedding(tokens))


@torch.jit.script
class Counter:
    def __init__(self, start: int):
        self.count = start

    def add(self, more: int) -> int:
        self.count += more
        return self.count


@torch.jit.interface
class Layer(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pass


class Adder(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1


class Language(nn.Module):
    """Much of the language: lists, dicts, strings, numbers, enumerations, classes, interfaces, exceptions."""

    layer: Layer

    def __init__(self):
        super().__init__()
        self.layer, self.color, self.pair, self.constant = Adder(), Color.RED, (1, "x"), torch.ones(2)
        self.table = {"k": [torch.ones(1)]}
        self.layers = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])

    @torch.jit.export
    def kind(self, x: int | str | torch.Tensor, y: float = float("inf")) -> int:
        if isinstance(x, int):
            return x + 1
        elif isinstance(x, str):
            return 2
        return 3

    def forward(self, x, t: float, name: str, xs: list[torch.Tensor], n: int = 4, mode: str | None = None):
        counter = Counter(3)
        counter.add(n)
        sums: dict[str, float] = {"a": t, "b": -1.5}
        for _key, value in sums.items():
            t += value
        for one in xs:
            x = x + one
        x = self.layer(x)
        with torch.no_grad():
            fixed = x * 2
        parts = name.split(",")
        joined = "-".join(parts).upper() + str(n)
        if self.color == Color.BLUE:
            x = x - 1
        steps = [i * i for i in range(3, 10, 2)]
        steps.sort(reverse=True)
        inside = "a" in sums and 25 in steps
        more = steps[1:] + [4] * 2
        x = x.clone()
        x[x > 3] = 0
        x[0] += 1
        picked = x[:, torch.tensor([0, 1])][..., None, -1]
        for i, layer in enumerate(self.layers):
            x = layer(x) * (i + 1)
        e: int | None = None
        if mode is None:
            e = 3
        assert e is not None, "a mode"
        numbers = (2**n, n**2.0, 7 // 2, -7 // 2, 7 % 3, -7 % 3, 7 / 2, round(2.5), abs(-3), max(3, n), min(t, 2.0),
                   int(2.7), float(n), divmod(7, n), sum(steps), sorted([3, 1, 2]))  # fmt: skip
        types = (x.dtype, x.dtype == torch.float32, x.to(torch.float64).dtype, x.shape, x.size(0), x.numel(), x.dim())
        listed: list[list[float]] = fixed.detach().tolist()
        return (x, fixed, joined, counter.count, inside, more, picked, e, numbers, types, listed, self.pair,
                self.table["k"][0], self.constant, f"{n}:{t}", "%d of %s" % (n, name), name[1:],  # noqa: UP031
                name.find("b"))  # fmt: skip


class Functions(nn.Module):
    """Functions of `torch.nn.functional`, which an archive contains as programs of their own."""

    def forward(self, x, image, target):
        losses = (
            F.cross_entropy(x, target), F.nll_loss(x, target, reduction="sum"), F.mse_loss(x, x * 2), F.l1_loss(x, -x),
            F.smooth_l1_loss(x, -x), F.huber_loss(x, -x), F.kl_div(x, x.softmax(1), reduction="batchmean"),
            F.binary_cross_entropy(x.sigmoid(), x.softmax(1)), F.binary_cross_entropy_with_logits(x, x.softmax(1)),
            F.cross_entropy(x, target, label_smoothing=0.1, reduction="none"),
        )  # fmt: skip
        images = (
            F.interpolate(image, scale_factor=2.0, mode="nearest"),
            F.interpolate(image, size=[5, 7], mode="bilinear", align_corners=False),
            F.interpolate(image, scale_factor=1.5, mode="bicubic", align_corners=True),
            F.pad(image, [1, 1, 2, 0], "reflect"), F.pad(image, [1, 2], value=3.0), F.max_pool2d(image, 2, stride=1),
            F.avg_pool2d(image, 2), F.adaptive_max_pool2d(image, 2), F.unfold(image, 2), F.instance_norm(image),
            F.group_norm(image, 2), F.normalize(x), F.one_hot(target, 5), F.gelu(x), F.hardswish(x), F.relu6(x),
            F.leaky_relu(x), F.elu(x), F.softplus(x), F.glu(image, 1), F.grid_sample(image, image.permute(0, 2, 3, 1)),
            F.pixel_shuffle(image.repeat(1, 2, 1, 1), 2), F.conv_transpose2d(image, image.transpose(0, 1)),
            F.scaled_dot_product_attention(image, image, image), F.layer_norm(x, [3]), F.softmin(x, 1),
        )  # fmt: skip
        others = (
            torch.einsum("ij,kj->ik", x, x), torch.stft(x.flatten(), 4, return_complex=False, window=torch.ones(4)),
            torch.norm(x), torch.norm(x, 1, -1), torch.where(x > 0, x, -x), torch.where(x > 0)[0], torch.unique(target),
            torch.cdist(x, x), torch.topk(x, 2), torch.std(x), torch.var(x, 1), x.std(0, unbiased=False), x.max(),
            x.max(1), torch.max(x, -x), torch.meshgrid([x[0], x[1]]), x.chunk(2, 1), x.split([1, 2], 1), x.unbind(1),
            x.sort(1, descending=True), torch.cat([x, x], 1), torch.stack([x, x]), x.sum([0, 1]), x.mean(1, True),
            torch.arange(5), torch.arange(0, 5, 2, dtype=torch.float32), torch.full([2], 3.0), torch.full([2], 1),
            torch.zeros_like(x), torch.linspace(0, 1, 3), torch.eye(2), x.new_zeros([2]), x.clamp(-1.0, 1.0),
            x.masked_fill(x > 0, 0.0), x.type_as(target), x.long(), x.to(target), x.to(torch.float64, copy=True),
            target / 2, torch.div(target, 2, rounding_mode="floor"), target // 2, target % 2, 2 - x, 1 / (x + 10), x**2,
            x.t() @ x, x.expand(2, -1, -1), x.repeat_interleave(2, 0), x.gather(1, target[:, None]), x.cumsum(1),
            x.scatter(1, target[:, None], 1.0), x.T, ~(x > 0), x.isnan().any(), x.argmax(1), x.roll(1, 0), x.tril(),
            x.index_select(1, torch.tensor([0])), x.narrow(1, 0, 2), x.movedim(0, 1), torch.addmm(x, x, x[:3] * 0 + 1)
            if x.shape[0] == 3 else x, torch.outer(x[0], x[1]), torch.logsumexp(x, 1), torch.bmm(x[None], x.t()[None]),
            torch.zeros([2], dtype=torch.int32), torch.tensor([[1.5, 2.0]]), torch.ones(2, 3).to(torch.bool),
            x[1:, ::2],
        )  # fmt: skip
        return losses, images, others


class Tied(nn.Module):
    """Two layers with one weight, a module that is used twice, outputs in a dict."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)
        self.two.weight = self.one.weight
        self.again = nn.ModuleDict({"a": self.one, "b": nn.PReLU()})

    def forward(self, x) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
        return {"x": (self.two(x), self.again["b"](self.again["a"](x))), "y": (x, x)}


class Quiet(nn.Module):
    """A traced function with a scripted one inside: control flow that stays."""

    def forward(self, x, y):
        return clip(x, y) + x.size(0) * x.shape[-1], {"parts": x.chunk(2, -1)[0]}


@torch.jit.script
def clip(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    if bool(x.sum() > y.sum()):
        return x
    return y * 2


def numbers(*shape, seed=0):
    """Numbers from a normal distribution."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def shared(name, which=0):
    """A program that this library scripts, too: the module, and one of its inputs."""
    return lambda: make(torch)[name][0], lambda: make(torch)[name][1][which]


# What is saved: how it becomes a program, the module, its inputs.
PROGRAMS = {
    "mlp": ("both", MLP, lambda: (numbers(4, 6),)),
    "convnet": ("both", *shared("ConvNet")),
    "recurrent": ("both", *shared("recurrent")),
    "cells": ("script", *shared("cells")),
    "attention": ("script", *shared("attention")),
    "transformers": ("script", *shared("transformers")),
    "transformers in evaluation": ("script", *shared("transformers in evaluation")),
    "forms": ("script", *shared("forms")),
    "encoder": ("both", Encoder, lambda: (torch.tensor([[1, 2, 3], [4, 5, 0]]),)),
    "detector": ("script", *shared("detector")),
    "detector with labels": ("script", *shared("detector", 1)),
    "language": ("script", Language, lambda: (numbers(3, 2), 2.0, "ab,c", [numbers(3, 2), numbers(3, 2)])),
    "functions": ("both", Functions, lambda: (numbers(4, 3), numbers(2, 2, 4, 4), torch.tensor([0, 2, 1, 1]))),
    "tied": ("both", Tied, lambda: (numbers(2, 4),)),
    "quiet": ("trace", Quiet, lambda: (numbers(2, 4), numbers(2, 4, seed=3))),
}
