"""`ignored()` ignores what NumPy would warn of, and leaves everything else as it was."""

import threading
import warnings

import numpy as np
import pytest

from tensorgrad.system.float_errors import _by_numpy, ignored

ZERO = np.zeros(3, np.float32)


@pytest.mark.parametrize("block", [ignored, _by_numpy])
def test_nothing_is_reported_inside_and_everything_after(block):
    with np.errstate(all="raise"):
        with block():
            assert np.isnan(ZERO / ZERO).all()
            with block():
                assert np.isinf(1 / ZERO).all()
            assert np.isinf(1 / ZERO).all()
        with pytest.raises(FloatingPointError):
            1 / ZERO
        with pytest.raises(KeyError), block():
            raise KeyError
        with pytest.raises(FloatingPointError):
            1 / ZERO


def test_other_threads_are_not_affected():
    seen = []

    def divide():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            1 / ZERO
        seen.append(len(caught))

    with ignored():
        thread = threading.Thread(target=divide)
        thread.start()
        thread.join()
    assert seen == [1]


def test_what_numpy_had_set_stays():
    with np.errstate(divide="raise", over="warn"):
        before = np.geterr()
        with ignored():
            assert set(np.geterr().values()) == {"ignore"}
        assert np.geterr() == before
