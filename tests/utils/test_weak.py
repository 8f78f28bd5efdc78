"""`torch.utils.weak`: dictionaries with tensors as keys, beside PyTorch's."""

import gc

import pytest

import tensorgrad.utils.weak
from tests.support.alike import alike

pytest.importorskip("torch.utils.weak", reason="torch is not installed: nothing to compare with")


@alike
def test_keys_are_objects_and_go_with_them(torch):
    import importlib

    weak = importlib.import_module(f"{torch.__name__}.utils.weak")
    x, y = torch.ones(2), torch.ones(2)
    known = weak.WeakTensorKeyDictionary()
    known[x], known[y] = "x", "y"
    known[x] = "again"
    told = [known[x], known[y], len(known), torch.ones(2) in known, x in known, 3 in known, known.get(torch.ones(1))]
    told += [known.setdefault(y, "new"), sorted(known.values()), known.copy()[x], len(known.keyrefs())]
    reference, tensor = weak.WeakIdRef(x), weak.TensorWeakRef(x)
    told += [reference() is x, tensor() is x, reference == weak.WeakIdRef(x), reference == weak.WeakIdRef(y)]
    del x
    gc.collect()
    told += [len(known), list(known.values()), reference() is None, tensor() is None, known.pop(y), len(known)]
    try:
        del known[y]
    except KeyError:
        told.append("no such key")
    return told


def test_a_dictionary_is_not_kept_alive_by_its_keys():
    import weakref

    x = tensorgrad.ones(2)
    known = tensorgrad.utils.weak.WeakIdKeyDictionary({})
    known[x] = 1
    alive = weakref.ref(known)
    del known
    assert alive() is None
