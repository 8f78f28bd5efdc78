"""ONNX's own tests of the operators that are read, which its package makes."""

import fnmatch
import io
import re
import sys
import types
import warnings

import numpy as np
import pytest

import tensorgrad as torch
from tensorgrad.onnx import errors
from tensorgrad.onnx.operators import OPERATORS
from tests.onnx.compare import NEEDS

onnx = pytest.importorskip("onnx", reason=NEEDS)

# Tests of operators that are read, of what is not there or is otherwise.
OTHERWISE = {
    "*training_dropout*": "other random numbers",
    "test_resize_downsample_scales_*_align_corners": "the last element is at the end, as in PyTorch and onnxruntime",
    "test_resize_tf_crop_and_resize*": "NotImplementedError",
    "test_col2im_5d": "NotImplementedError",
    "test_lstm_with_peepholes": "NotImplementedError",
    "test_equal_string*": "strings",
}
# Attributes that are refused.
REFUSED = ("CastLike with the attribute 'saturate'", "Cast with the attribute 'round_mode'",
           "SpaceToDepth with the attribute 'mode'")  # fmt: skip
FEWEST = 1200  # tests of version 1.23 of the package that are compared


def cases():
    """The tests. Those of these operators, which are not read, take a second to make."""
    package = "onnx.backend.test.case.node"
    for name in ("image_decoder", "lppool"):
        sys.modules.setdefault(f"{package}.{name}", types.ModuleType(name))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        node = __import__(package, fromlist=["collect_testcases"])
        return node.collect_testcases(None)


def wrong(case):
    """What is wrong with the results of a test; None if its elements are of types that are not NumPy's."""
    model = torch.onnx.load(io.BytesIO(case.model.SerializeToString()))
    for inputs, outputs in case.data_sets:
        arrays = [np.asarray(a) for a in (*inputs, *outputs)]
        if any(a.dtype.kind not in "biufc" for a in arrays):
            return None
        with torch.no_grad():
            made = model(*(torch.from_numpy(np.array(a)) for a in inputs))
        made = made if isinstance(made, tuple) else (made,)
        if len(made) != len(outputs):
            return f"{len(made)} results"
        for found, expected in zip((t.numpy() for t in made), arrays[len(inputs) :], strict=True):
            if (found.shape, found.dtype) != (expected.shape, expected.dtype):
                return f"{found.dtype}{found.shape}, not {expected.dtype}{expected.shape}"
            close = 2e-3 if expected.dtype == np.float16 else max(case.rtol, 1e-3)
            if not np.allclose(found, expected, close, max(case.atol, 1e-7), equal_nan=True):
                return f"differs by {np.nanmax(abs(found - expected))}"
    return ""


def test_onnxs_own_tests():
    compared, failed = 0, []
    for case in cases():
        if any(fnmatch.fnmatch(case.name, pattern) for pattern in OTHERWISE):
            continue
        try:
            told = wrong(case)
        except errors.UnsupportedOperatorError as error:
            operator = re.search(r"the operator (\S+) is not read", str(error))
            known = operator[1] in OPERATORS if operator else not any(text in str(error) for text in REFUSED)
            told = str(error) if known else None
        except errors.InvalidModelError as error:
            old_or_odd = re.search(r"operators of version (None|10|\d):|are not read", str(error))
            told = None if old_or_odd else str(error)
        except Exception as error:  # is shown with the others
            told = f"{type(error).__name__}: {error}"
        if told is not None:
            compared += 1
            failed += [f"{case.name}: {told}"] * bool(told)
    assert not failed, "\n".join(failed)
    assert compared >= FEWEST or onnx.__version__ < "1.23"
