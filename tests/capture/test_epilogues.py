"""Epilogues: launches of a plan that one kernel does together (capture/epilogues.py). They change no bit."""

import itertools

import numpy as np
import pytest

import tensorgrad as torch
from tensorgrad import nn
from tensorgrad.capture.epilogues import BACKWARD, FORWARD
from tensorgrad.rows.kernel_tables import COMPILED
from tests.capture.compare import bits
from tests.capture.test_chains import plan_of, settled, usable

F = nn.functional

pytestmark = pytest.mark.skipif(not usable(), reason="needs the compiled kernels")


class Training:
    """A small network of images, what trains it, and a batch."""

    def __init__(self, size=28, channels=(1, 8, 12), batch=8, pool=2, momentum=0.9, seed=0, lr=0.05):
        torch.manual_seed(seed)
        layers = []
        for inputs, outputs in itertools.pairwise(channels):
            layers += [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
            layers += [nn.MaxPool2d(pool)]
            size //= pool
        self.model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels[-1] * size * size, 10))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=lr, momentum=momentum)
        self.x, self.y = torch.randn(batch, channels[0], 28, 28), torch.randint(0, 10, (batch,))

    def step(self):
        loss = F.cross_entropy(self.model(self.x), self.y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss

    def after(self):
        grads = [None if p.grad is None else bits(p.grad) for p in self.model.parameters()]
        return [bits(t) for t in self.model.state_dict().values()], grads


def ops(region):
    return [launch.of for launch in plan_of(region).launches.launches if launch.of]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("channels", [(1, 8, 12), (2, 16, 24, 9)])
def test_a_block_of_a_network_is_one_kernel_each_way_with_the_bits_of_the_program(channels, threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        one, same = Training(channels=channels, batch=32), Training(channels=channels, batch=32)
        region = settled(one.step)
        found = ops(region)
        assert found.count(FORWARD) == found.count(BACKWARD) == len(channels) - 1, found
        assert not {"batch_norm", "relu", "max_pool", "relu.backward", "max_pool_grad"} & {*found}
        for _ in range(6):
            same.step()
        for value in (1.0, -2.0, 0.0, float("inf"), float("nan")):
            for t in (one, same):
                t.x[:2, :, 3:9] = value
            assert [bits(region()), one.after()] == [bits(same.step()), same.after()]
        assert region.plans == 1
    finally:
        torch.set_num_threads(before)


def test_what_others_use_is_written_to_memory():
    """Windows of another size, and a result of ReLU that is returned, are kernels of their own."""
    assert FORWARD not in ops(settled(Training(pool=3, batch=32).step))
    one = Training(batch=32)
    norm, act, pool = one.model[1:4]
    x = torch.randn(8, 8, 28, 28)

    def forward():
        with torch.no_grad():
            positive = act(norm(x))
            return positive, pool(positive)

    assert FORWARD not in ops(settled(forward))


def test_where_the_kernel_is_not_to_be_used_the_three_are(monkeypatch):
    one, same = Training(batch=32), Training(batch=32)
    region = settled(one.step)
    for _ in range(6):
        same.step()
    launches = [launch for launch in plan_of(region).launches.launches if launch.of in (FORWARD, BACKWARD)]
    random = np.random.RandomState(0)
    x, g = (random.standard_normal(shape).astype(np.float32) for shape in ((32, 8, 28, 28), (32, 8, 14, 14)))
    weight, bias = random.standard_normal((2, 8)).astype(np.float32)
    forward, backward = launches[0].function, launches[-1].function
    results = []
    for _ in range(2):
        made = forward(x, weight, bias)
        results.append([a.tobytes() for a in (*made, *filter(lambda a: a is not None, backward(
            g, made[0], made[1], x, weight, made[2], made[4])))])  # fmt: skip
        for name in (FORWARD, BACKWARD):
            monkeypatch.setattr(COMPILED[name], "large_from", 1 << 62)
    assert results[0] == results[1]
    assert [bits(region()), one.after()] == [bits(same.step()), same.after()]
