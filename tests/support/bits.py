"""Prints a digest of every result of some programs, by the kernels of one file: two files may be for two processors.

    python -m tests.support.bits FILE [PROGRAM ...]

A program is one of tools/kernels/verify.py, `drawn:SEED` (geometries drawn at random), or `training`. With code for
aarch64 the kernels run on an emulated processor (emulated.py).
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tensorgrad.kernels.compiled import table
from tensorgrad.kernels.compiled.runtime import library, target
from tests.support import emulated
from tools.kernels import verify


def use(file: Path) -> None:
    """Has this process run the kernels of a file."""
    image = library.Image(str(file))
    level = image.head["level"]
    if level in target.here():
        target.use(level)
        library.image = lambda: image  # type: ignore[assignment]
    else:
        emulated.use(file)


def kernels_of(program: str = "") -> dict[str, Any]:
    """Returns the kernels that a program of `verify` is for, by name; all of them for no program."""
    names = dict.fromkeys(row.kernel for row in table.ROWS if row is not table.WAITING)
    return {
        name: library.load(name)
        for name in names
        if program in ("", name) or (name.rpartition(".")[0] == program and name not in verify.PROGRAMS)
    }


def drawn(seed: int) -> Iterator[Any]:
    """Yields results and gradients of all that sums, and of functions of numbers of any size."""
    import tensorgrad as torch

    F, r = torch.nn.functional, np.random.default_rng(seed)

    def up_to(*most: int) -> list[int]:
        return [int(np.exp(r.uniform(0, np.log(n + 0.99)))) for n in most]

    def numbers(*shape: int) -> Any:
        return torch.tensor(r.standard_normal(shape).astype(np.float32), requires_grad=True)

    def both(result: Any, *inputs: Any) -> list[Any]:
        weights = torch.tensor(r.standard_normal(tuple(result.shape)).astype(np.float32))
        return [result, *torch.autograd.grad((result * weights).sum(), inputs)]

    for _ in range(4):
        n, m = up_to(40, 5000)
        x, w, b = numbers(n, m), numbers(m), numbers(m)
        yield from [*both(x.softmax(-1), x), *both(x.log_softmax(-1), x)]
        yield from both(F.layer_norm(x, (m,), w, b), x, w, b)
        yield from both(F.rms_norm(x, (m,), w), x, w)
        yield from both(F.cross_entropy(x, torch.tensor(r.integers(0, m, n)), reduction="none"), x)
        shape = up_to(9, 20, 30, 30)
        x, w, b = numbers(*shape), numbers(shape[1]), numbers(shape[1])
        if x.numel() > 2 * shape[1]:
            yield from both(F.batch_norm(x, torch.zeros(shape[1]), torch.ones(shape[1]), w, b, True), x, w, b)
            yield from both(F.group_norm(x, 1, w, b), x, w, b)
            points = x.contiguous(memory_format=torch.channels_last)
            yield from both(F.group_norm(points, shape[1], w, b), x, w, b)
        x = numbers(*up_to(30, 60, 3000)).detach()
        for dim in (0, 1, 2, (0, 1, 2)):
            yield from [x.sum(dim), x.mean(dim), x.var(dim, correction=0), torch.linalg.vector_norm(x, dim=dim)]
        yield from [x.prod(), x.prod(-1), x.t().sum(0) if x.ndim == 2 else x.transpose(0, 2).sum(1)]
        batch, heads, length, source, features, width = up_to(3, 4, 200, 200, 70, 70)
        q, k, v = (numbers(batch, heads, *s) for s in ((length, features), (source, features), (source, width)))
        yield from both(F.scaled_dot_product_attention(q, k, v), q, k, v)
        if length == source:
            yield from both(F.scaled_dot_product_attention(q, k, v, is_causal=True), q, k, v)
        rows, depth, columns = up_to(80, 700, 300)
        x, w, b = numbers(rows, depth), numbers(columns, depth), numbers(columns)
        yield from [*both(F.linear(x, w, b), x, w, b), *both(x @ w.t(), x, w)]
        x, w = numbers(3, rows, columns), numbers(3, columns, depth)
        yield from both(x @ w, x, w)
        images, ins, outs, size, taps, stride, padding = up_to(40, 20, 70, 30, 4, 3, 3)
        size += taps
        x, w, b = numbers(images, ins, size, size), numbers(outs, ins, taps, taps), numbers(outs)
        yield from both(F.conv2d(x, w, b, stride, padding - 1), x, w, b)
        x, w = numbers(images, ins, size, size), numbers(outs, ins, 3, 3)  # where Winograd's method may be chosen
        yield from both(F.conv2d(x, w, padding=1), x, w)
        yield from [*both(F.avg_pool2d(x, 2), x), *both(F.adaptive_avg_pool2d(x, 1), x)]
        hidden, features, rows = up_to(70, 40, 20)
        for kind in (torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN):
            net, x = kind(features, hidden), numbers(5, rows, features)
            for p in net.parameters():
                p.data = numbers(*p.shape).detach() * 0.2
            yield from both(net(x)[0], x, *net.parameters())
        given = [numbers(m).detach() for m in up_to(3000, 3000)]
        for x in given:
            x.grad = x * 2
        yield torch.nn.utils.clip_grad_norm_(given, 1.0)
    bits = r.integers(0, 1 << 32, 20000, dtype=np.uint32).view(np.float32)  # nan, inf and the smallest, too
    ordinary = np.concatenate([r.uniform(-100, 100, 20000), r.standard_normal(20000)]).astype(np.float32)
    for array in (bits, ordinary):
        for function in [
            "exp", "log", "tanh", "sigmoid", "erf", "erfc", "relu", "expm1", "log1p", "sqrt", "reciprocal",
        ]:  # fmt: skip
            yield getattr(torch, function)(torch.tensor(array))
        for function in ["gelu", "silu", "softplus", "elu", "selu", "mish", "leaky_relu", "logsigmoid", "hardswish"]:
            x = torch.tensor(array, requires_grad=True)
            made = getattr(F, function)(x)
            yield from [made, *torch.autograd.grad(made.sum(), x)]
        yield F.gelu(torch.tensor(array), approximate="tanh")


def training() -> Iterator[Any]:
    """Yields the losses of a few steps of four small networks."""
    import tensorgrad as torch

    nn = torch.nn

    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cells, self.head = nn.LSTM(20, 37, batch_first=True), nn.Linear(37, 10)

        def forward(self, x: Any) -> Any:
            return self.head(self.cells(x)[0][:, -1])

    class GPT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layer = nn.TransformerEncoderLayer(48, 3, 90, 0.1, "gelu", batch_first=True)
            self.words, self.blocks, self.head = (
                nn.Embedding(31, 48),
                nn.TransformerEncoder(layer, 2),
                nn.Linear(48, 31),
            )

        def forward(self, x: Any) -> Any:
            mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
            return self.head(self.blocks(self.words(x), mask=mask, is_causal=True)).flatten(0, 1)

    torch.manual_seed(0)
    image, words = torch.randn(32, 3, 20, 20), torch.randint(0, 31, (8, 50))
    cases = (
        (nn.Sequential(nn.Linear(300, 128), nn.Tanh(), nn.LayerNorm(128), nn.Linear(128, 10)), torch.randn(32, 300)),
        (
            nn.Sequential(
                nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
                nn.Conv2d(16, 24, 3, stride=2), nn.GroupNorm(4, 24), nn.SiLU(), nn.Flatten(), nn.Linear(384, 10),
            ),
            image,
        ),
        (GPT(), words), (Last(), torch.randn(32, 15, 20)),
    )  # fmt: skip
    for net, x in cases:
        target = words.roll(-1, 1).flatten() if x is words else torch.randint(0, 10, (32,))
        optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
        for _ in range(8):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(x), target)
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            yield loss


def digest(found: Any) -> str:
    found = np.asarray(found.detach().numpy() if hasattr(found, "detach") else found)
    if found.dtype.kind == "f":  # of nan there are many
        found = np.where(np.isnan(found), found.dtype.type(np.nan), found)
    return hashlib.sha256(found.tobytes()).hexdigest()[:12]


def main(file: str, *programs: str) -> int:
    use(Path(file))
    for program in programs or [name for name in verify.PROGRAMS if name != "runtime.spin"]:
        name, _, seed = program.partition(":")
        if name == "training":  # as a user's program runs
            results: Any = training()
            for n, result in enumerate(results):
                print(program, n, digest(result), float(result.item()))
            continue
        with verify.only(kernels_of("" if name == "drawn" else name)):
            for n, result in enumerate(drawn(int(seed)) if name == "drawn" else verify.PROGRAMS[name]()):
                print(program, n, digest(result))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
