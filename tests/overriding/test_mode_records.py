"""Every third record of PyTorch's op database computes the same while a `TorchDispatchMode` passes its operators on."""

import pytest

pytest.importorskip("torch", reason="torch is the oracle of these tests")
pytest.importorskip("expecttest", reason="PyTorch's test database imports expecttest")

import numpy as np
import torch

import tensorgrad as tg
from tensorgrad.utils._python_dispatch import BaseTorchDispatchMode
from tests.conformance import opdb
from tests.conformance.opdb_bridge import leaves, numpy_of, to_tg

pytestmark = pytest.mark.filterwarnings("ignore")  # the records do on purpose what is warned about
UNDEFINED = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}
RECORDS = [
    r for r in opdb.records() if torch.float32 in r.dtypes and r.name not in UNDEFINED and opdb.resolve(r) is not None
]


def outcome(call, gradients):
    """Returns the results of a call, and the gradients of its inputs for their sum; or the class of the error."""
    tg.manual_seed(0)
    arguments = to_tg((call.inputs, call.kwargs))
    try:
        results = [t for t in leaves(call.ours(arguments)) if isinstance(t, tg.Tensor)]
        inputs = [t for t in leaves(arguments) if isinstance(t, tg.Tensor) and t.requires_grad]
        outs = [t.abs().sum() for t in results if t.requires_grad]
        if gradients and inputs and outs:
            results += [t for t in tg.autograd.grad(outs, inputs, allow_unused=True) if t is not None]
    except Exception as error:
        return type(error)
    return [(t.shape, t.dtype, t.layout, t.detach()) for t in results]


@pytest.mark.parametrize("record", RECORDS[::3], ids=opdb.record_name)
def test_a_mode_changes_nothing(record):
    for gradients in (False, True)[: 1 + record.supports_autograd]:
        for call in opdb.calls(record, torch.float32, requires_grad=gradients, limit=3, elements=2000):
            plain = outcome(call, gradients)
            with BaseTorchDispatchMode():
                seen = outcome(call, gradients)
            if isinstance(plain, type) or isinstance(seen, type):
                assert plain is seen, call
                continue
            assert [t[:3] for t in plain] == [t[:3] for t in seen], call
            for (*_, layout, expected), (*_, actual) in zip(plain, seen, strict=True):
                if layout is tg.strided and not call.random:
                    np.testing.assert_allclose(numpy_of(actual), numpy_of(expected), rtol=1e-3, atol=1e-4)
