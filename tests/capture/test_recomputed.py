"""Norms that a plan computes again instead of keeping them for the backward pass (capture/recomputed.py)."""

import pytest

import tensorgrad as torch
from benchmarks.capture import peak
from tensorgrad import nn
from tensorgrad.capture import plan as plans
from tests.capture.compare import bits
from tests.capture.test_chains import plan_of, settled, usable

pytestmark = pytest.mark.skipif(not usable(), reason="needs the compiled kernels")


class Block(nn.Module):
    """A block of a transformer, without attention."""

    def __init__(self, width, norm, dropout):
        super().__init__()
        self.norm, self.dropout = norm(width), nn.Dropout(dropout)
        self.first, self.second = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.dropout(self.second(nn.functional.gelu(self.first(self.norm(x)))))


class Training:
    """Some blocks, what trains them, and a batch; `between` is called between the passes."""

    def __init__(self, norm=nn.LayerNorm, rows=512, width=64, blocks=4, dropout=0.0, between=None, set_to_none=True):
        torch.manual_seed(0)
        self.model = nn.Sequential(*(Block(width, norm, dropout) for _ in range(blocks)), nn.Linear(width, 3))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.x, self.y = torch.randn(rows, width), torch.randint(0, 3, (rows,))
        self.between, self.set_to_none = between, set_to_none

    def step(self):
        loss = nn.functional.cross_entropy(self.model(self.x), self.y)
        self.optimizer.zero_grad(self.set_to_none)
        if self.between is not None:
            self.between(self.model)
        loss.backward()
        self.optimizer.step()
        return loss

    def after(self):
        return [bits(t) for p in self.model.parameters() for t in (p, p.grad)]


def norms(region):
    return [launch.of for launch in plan_of(region).launches.launches if launch.of in ("layer_norm", "rms_norm")]


@pytest.mark.parametrize(("norm", "dropout", "set_to_none", "threads"), [
    (nn.LayerNorm, 0.0, True, 1),
    (nn.LayerNorm, 0.5, False, 2),
    (nn.RMSNorm, 0.0, False, 1),
    (nn.RMSNorm, 0.5, True, 2),
])  # fmt: skip
def test_norms_are_computed_again_with_the_bits_of_the_program(norm, dropout, set_to_none, threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        state = torch.get_rng_state()
        one = Training(norm, dropout=dropout, set_to_none=set_to_none)
        region = settled(one.step)
        losses = [region() for _ in range(3)]
        after = torch.get_rng_state()
        torch.set_rng_state(state)
        same = Training(norm, dropout=dropout, set_to_none=set_to_none)
        for _ in range(6):
            same.step()
        assert [bits(same.step()) for _ in range(3)] == [bits(loss) for loss in losses]
        assert torch.equal(after, torch.get_rng_state())
        assert one.after() == same.after()
    finally:
        torch.set_num_threads(before)
    assert len(norms(region)) > 4, norms(region)


def test_that_frees_memory_while_most_is_held(monkeypatch):
    taken = []
    for found in (plans.recomputed, lambda launches, tail: launches.launches):
        monkeypatch.setattr(plans, "recomputed", found)
        region = settled(Training().step)
        taken.append(peak(region))
    again, kept = taken
    one = 512 * 64 * 4
    assert kept - again >= 3 * one, taken  # those of all blocks but the last, whose gradients come first


def written(model):
    """Nothing keeps the bias for the backward pass, so it may be written to."""
    with torch.no_grad():
        for block in list(model)[:-1]:
            block.norm.bias.add_(1.0)


def test_a_norm_whose_bias_is_written_to_is_not_computed_again():
    one, same = Training(between=written), Training(between=written)
    region = settled(one.step)
    assert len(norms(region)) == 4
    for _ in range(6):
        same.step()
    assert bits(region()) == bits(same.step())
    assert one.after() == same.after()


class Returning(Training):
    """Returns what a norm has computed."""

    def step(self):
        first, *others = self.model[0].norm(self.x), *self.model[1:]
        loss = nn.functional.cross_entropy(nn.Sequential(*others)(first), self.y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return first.detach()


def test_a_norm_whose_result_is_returned_or_small_is_not_computed_again():
    assert len(norms(settled(Returning(blocks=2).step))) == 2
    assert len(norms(settled(Training(rows=16).step))) == 4
