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
    "test_training_dropout": "other random numbers",
    "test_training_dropout_mask": "other random numbers",
    "test_training_dropout_default*": "other random numbers",
    "test_bernoulli*": "other random numbers",
    "test_resize_downsample_scales_*_align_corners": "the last element is at the end, as in PyTorch and onnxruntime",
    "test_lstm_with_peepholes": "NotImplementedError",
    "test_equal_string*": "strings",
}
# Attributes that are refused.
REFUSED = ("Cast with the attribute 'round_mode'", "LabelEncoder with the attribute 'keys_strings'")
FEWEST = 1747  # tests of version 1.23 of the package that are compared
OWN = ("bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")  # element types not NumPy's


def cases():
    """The tests. Those of images in files, which are not read, take a second to make."""
    package = "onnx.backend.test.case.node"
    sys.modules.setdefault(f"{package}.image_decoder", types.ModuleType("image_decoder"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        node = __import__(package, fromlist=["collect_testcases"])
        return node.collect_testcases(None)


def arrays(value):
    """The arrays of a value, which is one, or a sequence, or nothing."""
    if isinstance(value, list):
        return [arrays(v) for v in value]
    if isinstance(value, onnx.TensorProto):
        value = onnx.numpy_helper.to_array(value)
    return value if value is None else np.asarray(value)


def dtypes(values):
    return {name for v in values for name in (dtypes(v) if isinstance(v, list) else [] if v is None else [v.dtype])}


def tensor(value):
    if isinstance(value, list):
        return [tensor(v) for v in value]
    if value is None or value.dtype.name not in OWN:
        return value if value is None else torch.from_numpy(np.array(value))
    bits = np.array(value).view(f"u{value.dtype.itemsize}")
    return torch.from_numpy(bits).view(getattr(torch, value.dtype.name))


def different(found, expected, rtol, atol):
    """How a result differs; the empty string if it does not."""
    if isinstance(expected, list):
        if not isinstance(found, list) or len(found) != len(expected):
            return f"not {len(expected)} elements"
        return next(filter(None, (different(a, b, rtol, atol) for a, b in zip(found, expected, strict=True))), "")
    if expected is None or found is None:
        return "" if found is expected else "one is None"
    if (tuple(found.shape), str(found.dtype)) != (expected.shape, f"torch.{expected.dtype}"):
        return f"{found.dtype}{list(found.shape)}, not {expected.dtype}{expected.shape}"
    if expected.dtype.name in OWN:
        found, expected, rtol = found.float(), expected.astype(np.float32), 2**-6
    rtol = 2e-3 if expected.dtype == np.float16 else max(rtol, 1e-3)
    found = found.numpy()
    if not np.allclose(found, expected, rtol, max(atol, 1e-7), equal_nan=True):
        return f"differs by {np.nanmax(abs(found - expected))}"
    return ""


def wrong(case):
    """What is wrong with the results of a test; None if its elements are of types that do not exist here."""
    model = torch.onnx.load(io.BytesIO(case.model.SerializeToString()))
    for data in case.data_sets:
        inputs, outputs = ([arrays(a) for a in values] for values in data)
        if any(d.kind not in "biufc" and d.name not in OWN for d in dtypes([*inputs, *outputs])):
            return None
        with torch.no_grad():
            made = model(*(tensor(a) for a in inputs))
        made = made if isinstance(made, tuple) else (made,)
        if len(made) != len(outputs):
            return f"{len(made)} results"
        found = (different(a, b, case.rtol, case.atol) for a, b in zip(made, outputs, strict=True))
        told = next(filter(None, found), "")
        if told:
            return told
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
            old_or_odd = re.search(r"operators of version [1-6]:|are not read", str(error))
            told = None if old_or_odd else str(error)
        except Exception as error:  # is shown with the others
            told = f"{type(error).__name__}: {error}"
        if told is not None:
            compared += 1
            failed += [f"{case.name}: {told}"] * bool(told)
    assert not failed, "\n".join(failed)
    assert compared >= FEWEST or onnx.__version__ < "1.23"
