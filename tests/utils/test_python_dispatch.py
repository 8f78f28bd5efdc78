"""`torch.utils._python_dispatch`: a mode can be defined, and says why it cannot be entered."""

import pytest

import tensorgrad
from tensorgrad.utils import _python_dispatch as ours


def test_a_mode_is_refused_when_it_is_entered():
    class Mode(ours.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    mode = Mode()
    with pytest.raises(NotImplementedError, match=r"Mode: operators do not call modes.*TorchFunctionMode"), mode:
        pass
    with ours._disable_current_modes() as modes:
        assert modes == [] == ours._get_current_dispatch_mode_stack() and ours._get_current_dispatch_mode() is None


def test_names_and_answers():
    theirs = pytest.importorskip("torch.utils._python_dispatch", reason="torch is not installed")
    torch = pytest.importorskip("torch")
    helpers = ("Any", "Iterator", "contextmanager", "__all__")
    assert not [name for name in vars(ours) if not hasattr(theirs, name) and name not in helpers]

    def classes(l):
        class Plain(l.Tensor):
            pass

        class Made(l.Tensor):
            def __tensor_flatten__(self):
                return [], None

            @staticmethod
            def __tensor_unflatten__(inner, context, size, stride):
                return None

        return l.Tensor, Plain, Made

    answers = [
        [p.is_traceable_wrapper_subclass_type(c) for c in classes(l)] for p, l in ((ours, tensorgrad), (theirs, torch))
    ]
    assert answers[0] == answers[1]
