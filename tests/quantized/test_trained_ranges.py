"""How PyTorch chooses scales and zero points: exactly, also where a zero point lies between two integers."""

import numpy as np
import pytest

import tensorgrad
from tensorgrad.storage.scales import chosen, chosen_for_one
from tests.support.alike import HAS_TORCH, alike, error

INTEGERS = ((0, 255), (-128, 127), (0, 127), (-64, 63), (0, 15))


def ranges(seed, count):
    """Ranges of all sizes; of most, zero lies in the middle between two integers."""
    random = np.random.default_rng(seed)
    for i in range(count):
        m, half = np.float32(abs(random.normal()) * 10 ** random.uniform(-9, 3)), random.integers(0, 511) / 2
        kinds = [-m, m * random.choice([1, 0.5, 0.25, 3, 0, 1.1])], [-half * m / 64, (255 - half) * m / 64]
        yield np.sort(np.array((*kinds, random.integers(-300, 300, 2) / 64)[i % 3], np.float32))


def observed(library, values, low, high, channels, symmetric):
    """What `fused_moving_avg_obs_fake_quant` makes of two calls: results, range, scale and zero point."""
    inf, on = float("inf"), library.tensor([1])
    n = len(values) if channels else 1
    state = library.full((n,), inf), library.full((n,), -inf), library.ones(n), library.zeros(n, dtype=library.int32)
    made = [
        library.fused_moving_avg_obs_fake_quant(
            library.tensor(x), on, on, *state, 0.01, low, high, 0, channels, symmetric
        ).numpy()
        for x in (values, values[::-1].copy())
    ]
    return [*made, *(t.numpy() for t in state)]


@pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed: there is nothing to compare with")
@pytest.mark.parametrize(("low", "high"), INTEGERS)
def test_scales_and_zero_points_of_training(low, high):
    import torch

    values = np.stack([*ranges(high, 240)])
    for symmetric in (False, True):
        given = [(values, True), *((values[i : i + 1], False) for i in range(40))]
        for x, channels in given:
            found, expected = (observed(lib, x, low, high, channels, symmetric) for lib in (tensorgrad, torch))
            for ours, theirs in zip(found, expected, strict=True):
                np.testing.assert_array_equal(ours, theirs, err_msg=f"{symmetric=} {channels=}")


@pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed: there is nothing to compare with")
def test_scales_and_zero_points_of_dynamic_quantization():
    import torch

    for values in ranges(1, 300):
        for dtype in ("quint8", "qint8"):
            for reduce_range in (False, True):
                found, expected = (
                    (q.q_scale(), q.q_zero_point())
                    for lib in (tensorgrad, torch)
                    for q in [lib.quantize_per_tensor_dynamic(lib.tensor(values), getattr(lib, dtype), reduce_range)]
                )
                assert found == expected, (values, dtype, reduce_range)


@alike
def test_ranges_that_are_not_finite(torch):
    def dynamic(*values):
        q = torch.quantize_per_tensor_dynamic(torch.tensor(values), torch.quint8, False)
        return [str(q.q_scale()), q.q_zero_point()]

    nan, inf = float("nan"), float("inf")
    return [error(dynamic, nan, 1.0), error(dynamic, 1.0, nan), error(dynamic, inf, 1.0), dynamic(-inf, 1.0)]


@alike
def test_what_is_switched_on(torch):
    """While nothing is rounded, the scale stays; while nothing is observed, it follows the range."""
    made, on, off = [], torch.tensor([1]), torch.tensor([0])
    x = torch.linspace(-1.3, 2.1, 12).reshape(3, 4)
    for observing in (on, off):
        for rounding in (on, off):
            for channels, n in ((False, 1), (True, 3), (True, 0)):
                for kept in (False, True) if n else (False,):
                    low, high = torch.full((n,), float("inf")), torch.full((n,), -float("inf"))
                    if kept:
                        low, high = torch.full((n,), -0.5), torch.full((n,), 1.5)
                    scale, zero = torch.ones(n), torch.zeros(n, dtype=torch.int32)
                    given = x.clone().requires_grad_()
                    y = torch.fused_moving_avg_obs_fake_quant(
                        given, observing, rounding, low, high, scale, zero, 0.25, 0, 15, 0, channels
                    )
                    y.sum().backward()
                    seen = [low, high, scale, zero][: 4 if n or rounding is on else 2]  # torch's may be anything else
                    made.append([y, given.grad, y.requires_grad, *seen])
    return made


@alike
def test_what_is_refused(torch):
    def call(x, n=1, channels=False, axis=0, low=0, high=15, observing=1):
        on, inf = torch.tensor([1]), float("inf")
        state = torch.full((n,), inf), torch.full((n,), -inf), torch.ones(n), torch.zeros(n, dtype=torch.int32)
        y = torch.fused_moving_avg_obs_fake_quant(
            x, torch.tensor([observing]), on, *state, 0.01, low, high, axis, channels
        )
        return [y, *state]

    x = torch.ones(3, 4)
    return [
        error(call, x.double()), error(call, x, axis=2), error(call, x, 4, True, 1), error(call, x[0], 4, True),
        error(call, x, 2, True, observing=0),
        error(call, x, low=3, high=1), call(torch.zeros(0)), call(torch.zeros(3)), call(torch.ones(3, 2, 2), 3, True),
    ]  # fmt: skip


@alike
def test_the_module(torch):
    def copied(module):
        return {name: value.clone() for name, value in module.state_dict().items()}

    q = torch.ao.quantization
    made = [error(q.FusedMovingAvgObsFakeQuantize, q.HistogramObserver)]
    for observer, scheme in (
        (q.MovingAverageMinMaxObserver, torch.per_tensor_affine),
        (q.MovingAverageMinMaxObserver, torch.per_tensor_symmetric),
        (q.MovingAveragePerChannelMinMaxObserver, torch.per_channel_symmetric),
        (q.MovingAveragePerChannelMinMaxObserver, torch.per_channel_affine),
    ):
        for dtype, low, high in ((torch.qint8, -128, 127), (torch.quint8, 0, 255), (torch.quint8, 0, 127)):
            module = q.FusedMovingAvgObsFakeQuantize(observer, low, high, dtype=dtype, qscheme=scheme)
            made += [repr(module), copied(module)]
            # the second channel has only positive numbers, the third only negative ones
            for x in (torch.tensor([[-1.0, 2.0], [0.5, 1.5], [-0.7, -0.1]]), torch.tensor([[3.0], [2.0], [-1.0]])):
                made += [module(x), copied(module)]
            made += [repr(module), list(module.calculate_qparams())]
            fresh = q.FusedMovingAvgObsFakeQuantize(observer, low, high, dtype=dtype, qscheme=scheme)
            fresh.load_state_dict(module.state_dict())
            module.apply(q.disable_observer)
            made += [fresh(torch.ones(3, 1)), module(torch.full((3, 1), 9.0)), copied(fresh)]
            made.append(torch.equal(module.apply(q.disable_fake_quant)(torch.ones(3, 1) / 3), torch.ones(3, 1) / 3))
    return made


@pytest.mark.filterwarnings("ignore:overflow")  # of ranges that float32 does not have
def test_one_range_has_the_scale_that_many_have():
    for low, high in INTEGERS:
        for lowest, highest in [*ranges(high, 600), (0, 0), (-3e38, 3e38), (0, 1e-40), (float("-inf"), 1), (0.1, 0.3)]:
            expected = chosen(np.float32(lowest), np.float32(highest), low, high)
            assert chosen_for_one(lowest, highest, low, high) == tuple(map(float, expected)), (lowest, highest)
