"""Huge pages are not asked for where they have been slow, and NumPy's own setting stays."""

import numpy as np
import pytest

import tensorgrad as torch
from tensorgrad.optim import state
from tensorgrad.storage import huge_pages

asked = getattr(np._core.multiarray, "_get_madvise_hugepage", None) if hasattr(np, "_core") else None
pytestmark = pytest.mark.skipif(asked is None, reason="this NumPy cannot be told")


@pytest.fixture(params=[True, False])
def setting(request, monkeypatch):
    """Starts with NumPy asking for huge pages or not, and with none that were slow."""
    monkeypatch.setattr(huge_pages._State, "slow", False)
    before = np._core.multiarray._set_madvise_hugepage(request.param)
    yield request.param
    np._core.multiarray._set_madvise_hugepage(before)


@pytest.mark.parametrize("size, seconds, slow", [(1 << 23, 0.01, True), (1 << 23, 0.004, False), (1 << 20, 1.0, False)])
def test_only_large_arrays_can_be_slow(setting, size, seconds, slow):
    huge_pages.took(size, seconds)
    with huge_pages.if_fast():
        assert asked() == (setting and not slow)
    assert asked() == setting


def test_an_error_restores_the_setting(setting):
    huge_pages.took(1 << 23, 1.0)
    with pytest.raises(ZeroDivisionError), huge_pages.if_fast():
        1 / 0
    assert asked() == setting


def test_an_optimizers_state_notices_slow_memory(setting, monkeypatch):
    seen = []
    seconds = iter(range(100))
    monkeypatch.setattr("tensorgrad.storage.fresh.thread_time", lambda: next(seconds))
    zeros_like = torch.zeros_like

    def start(p):
        seen.append(asked())
        return zeros_like(p)

    monkeypatch.setattr(torch, "zeros_like", start)
    values = {}
    state.begin(values, torch.zeros(1 << 20), {"exp_avg": start, "exp_avg_sq": start})
    assert seen == [setting, False]
    assert asked() == setting
    assert not values["exp_avg"].any()
    assert not values["exp_avg_sq"].any()
