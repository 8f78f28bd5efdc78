"""Random histories of views and writes: the recorded graph does to memory what the program does."""

import random

import pytest

import tensorgrad as torch
from tensorgrad.capture import record
from tests.capture.compare import bits

VIEWS = (
    lambda t, r: t[r.randrange(t.shape[0])] if t.ndim and t.shape[0] else t.view(t.shape),
    lambda t, r: t[..., ::2] if t.ndim else t.reshape(()),
    lambda t, r: t.flatten() if t.is_contiguous() else t.detach(),
    lambda t, r: t.transpose(0, -1) if t.ndim else t.unsqueeze(0),
    lambda t, r: t.unsqueeze(0),
    lambda t, r: t.detach(),
    lambda t, r: t.narrow(0, 0, t.shape[0] - 1) if t.ndim and t.shape[0] > 1 else t.view_as(t),
    lambda t, r: t.data,
)
MADE = (
    lambda t, r: t * 2 - 1,
    lambda t, r: t.clone(),
    lambda t, r: torch.full_like(t, r.random()),
    lambda t, r: torch.zeros(t.shape),
    lambda t, r: torch.rand(t.shape),
    lambda t, r: t.sum().expand(t.shape).contiguous(),
)
WRITES = (
    lambda t, o, r: t.add_(o.sum()),
    lambda t, o, r: t.mul_(0.5),
    lambda t, o, r: t.copy_(o.mean()),
    lambda t, o, r: t.fill_(r.random()),
    lambda t, o, r: t.zero_(),
    lambda t, o, r: t.clamp_(-1, 1),
    lambda t, o, r: t.uniform_(),
    lambda t, o, r: t.masked_fill_(t > 0.5, 0.25),
    lambda t, o, r: t.__setitem__(..., o.max()),
    lambda t, o, r: torch.tanh(t, out=t) if t.is_contiguous() else t.neg_(),
    lambda t, o, r: t.__iadd__(1),
)


def history(seed, outside, steps=14):
    """A program of views, new tensors and writes, over its inputs and tensors from outside."""

    def program(x, y):
        r = random.Random(seed)
        known = [x, y, *outside]
        for _ in range(steps):
            t, other = r.choice(known), r.choice(known)
            kind = r.random()
            if kind < 0.4:
                known.append(r.choice(VIEWS)(t, r))
            elif kind < 0.55:
                known.append(r.choice(MADE)(t, r))
            else:
                r.choice(WRITES)(t, other, r)
        return known[2 + len(outside) :]

    return program


def inputs(seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(3, 4, generator=generator)
    return x, x[1:] if seed % 3 == 0 else torch.randn(2, 4, generator=generator)


def state(program, given, outside):
    torch.manual_seed(1)
    return bits([program(*given), given, outside])


@pytest.mark.parametrize("block", range(8))
def test_histories(block):
    for seed in range(25 * block, 25 * block + 25):
        expected = []
        outside = [torch.ones(2, 3), torch.arange(6.0)]
        program = history(seed, outside)
        for number in (0, 0, 3):
            expected.append(state(program, inputs(seed if number == 0 else seed + 3 * number), outside))
        for tensor, values in zip(outside, (torch.ones(2, 3), torch.arange(6.0)), strict=True):
            tensor.copy_(values)
        given = inputs(seed)
        torch.manual_seed(1)
        recording = record(program, *given)
        found = [bits([recording.result, given, outside])]
        for number in (0, 3):
            found.append(state(recording, inputs(seed if number == 0 else seed + 3 * number), outside))
        for i in range(3):
            assert found[i] == expected[i], f"seed {seed}, run {i}:\n{recording}"
