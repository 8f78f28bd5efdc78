"""The words of errors: what people search for is PyTorch's text, word for word.

tests/ops/test_ops.py holds the types of the same exceptions. Here torch's first line must occur in the message; what is
said otherwise stands in OTHER_WORDS with the reason.
"""

import re
import traceback
import warnings

import pytest

pytest.importorskip("torch", reason="torch is the oracle of these tests")
pytest.importorskip("expecttest", reason="PyTorch's test database imports expecttest")

import torch

import tensorgrad as tg
from tests.conformance import opdb
from tests.ops.test_ops import WRONG
from tests.support.compare import evaluate

pytestmark = pytest.mark.filterwarnings("ignore")

_DEVICES = "both devices are named, as in PyTorch's message for the CPU and a GPU"
_PYTHON = "Python's own message of a call that does not fit the parameters"
OTHER_WORDS = {
    'l.ones(2) + l.ones(2, device="meta")': _DEVICES,
    'l.ones(2, 3) @ l.ones(3, device="meta")': _DEVICES,
    'l.cat([l.ones(2), l.ones(2, device="meta")])': _DEVICES,
    'F.mse_loss(l.ones(2), l.ones(2, device="meta"))': _DEVICES,
    "l.ones(2).exp(3)": _PYTHON,
    "l.ones(2).exp_(out=3)": _PYTHON,
    "l.mul(l.ones(1))": _PYTHON,
    "l.ones(2).softmax()": _PYTHON,
    "l.full((2,))": _PYTHON,
    "l.ones(1).requires_grad_(1, 2)": _PYTHON,
    "l.ones(2).sum(1.5)": _PYTHON,
    'l.zeros("a")': _PYTHON,
    "l.ones(3).masked_select(l.ones(2) > 0)": "the input's size is named before the mask's",
    "F.gelu(l.tensor([1]))": "the name of the kernel",
    "l.zeros(-1)": "in the words of torch.empty",
}
_FIRST = "several things are wrong, and another one is named first"
_SIZE = "the parameter is named"
OTHER_RECORDS = {  # the records of PyTorch's database whose bad inputs are refused in other words
    "amax": "NumPy's own limit of dimensions, and the words that every out= has",
    "amin": "NumPy's own limit of dimensions, and the words that every out= has",
    "aminmax": "NumPy's own limit of dimensions",
    "gradient": _FIRST,
    "nn.functional.adaptive_avg_pool1d": _SIZE,
    "nn.functional.adaptive_max_pool1d": _SIZE,
    "nn.functional.adaptive_max_pool2d": _SIZE,
    "nn.functional.adaptive_max_pool3d": _SIZE,
    "nn.functional.avg_pool2d": _FIRST,
    "nn.functional.avg_pool3d": _FIRST,
    "nn.functional.conv1d": _FIRST,
    "nn.functional.conv2d": _FIRST,
    "nn.functional.conv3d": _FIRST,
    "nn.functional.max_pool1d": "in the words of the other dimensions",
    "nn.functional.max_pool2d": _FIRST,
    "nn.functional.max_pool3d": _FIRST,
    "nn.functional.multi_margin_loss": _FIRST,
    "nn.functional.multilabel_margin_loss": _FIRST,
    "narrow_copy": "in the words of narrow, where PyTorch's is an internal assertion",
    "hsplit": _PYTHON,
    "vsplit": _PYTHON,
    "eye": "the first of two negative sizes is named",
}


def first_line(error) -> str:
    """Without what the lines below it list, and the library's name."""
    return re.sub(r"\s+", " ", str(error).split("\n")[0]).replace("tensorgrad", "torch").strip()


@pytest.mark.parametrize("expression", WRONG)
def test_words(expression):
    expected, found = first_line(evaluate(torch, expression)), first_line(evaluate(tg, expression))
    if expression in OTHER_WORDS:
        assert expected not in found, "these are PyTorch's words now: take it out of OTHER_WORDS"
    else:
        assert expected in found


RECORDS = [r for r in opdb.records() if r.error_inputs_func is not None and opdb.resolve(r) is not None]


@pytest.mark.parametrize("record", RECORDS, ids=opdb.record_name)
def test_words_of_records(record):
    """The database's own regular expressions for the messages of bad inputs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wrong = [f"{found!s:.200}, expected {pattern}" for pattern, found in messages(record) if found]
    if opdb.record_name(record) in OTHER_RECORDS:
        assert wrong, "these are PyTorch's words now: take it out of OTHER_RECORDS"
    else:
        assert not wrong, "\n".join(wrong)


def messages(record):
    """(the expected pattern, the exception if it says something else) for each bad input that is refused."""
    for bad in record.error_inputs("cpu"):
        try:
            opdb.Call(record, bad.sample_input).ours()
        except Exception as error:
            yield bad.error_regex, None if re.search(bad.error_regex, str(error)) else error


# --- tracebacks ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        lambda: tg.ones(2, 3) + tg.ones(4),
        lambda: tg.ones(2, 3) @ tg.ones(4, 2),
        lambda: tg.squeeze([1.0]),
        lambda: tg.ones(2).sum(dim=5),
        lambda: tg.where(tg.ones(2) > 0, tg.ones(3), tg.ones(4)),
        lambda: tg.ones(2, requires_grad=True).mul_(2),
        lambda: (tg.ones(3, requires_grad=True) * 2).backward(tg.ones(2)),
    ],
)
def test_a_traceback_shows_every_line_and_no_error_of_numpys(call):
    """Functions that are made from texts show them; what NumPy said of the same thing is not told beside it."""
    with pytest.raises(Exception) as caught:
        call()
    error = caught.value
    frames = traceback.extract_tb(error.__traceback__)
    assert frames and all(frame.line for frame in frames), frames
    shown = "".join(traceback.format_exception(error))
    assert shown.count("Traceback (most recent call last)") == 1, shown
