"""What a tensor says of itself after its memory was written, or when its flags are set; found by random programs."""

import warnings

import pytest

import tensorgrad as tg
from tests.support.alike import alike, error


@alike
def test_requires_grad_is_set_on_leaves_only(torch):
    leaf = torch.ones(2, 2, requires_grad=True)
    made = [leaf.view(-1), leaf * 2, leaf.t(), leaf[0], leaf.unbind()[0], leaf.detach(), torch.ones(2)]
    found = []
    for modes in (torch.no_grad, torch.enable_grad):
        with modes():
            for tensor in made:
                for value in (True, False):
                    found.append(error(setattr, tensor, "requires_grad", value))
                found.append(error(tensor.requires_grad_))
    return found


@alike
def test_flags_of_views_that_must_not_be_asked_for_their_history(torch):
    def flags(view):
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            grad = view.grad
        read = {name: error(getattr, view, name).partition(":")[0] for name in ("is_leaf", "grad_fn")}
        return read, grad, len(warned), view.retains_grad, view.requires_grad, tuple(view.shape)

    found = []
    for write in (lambda x: x.detach().zero_(), lambda x: x.mul_(2)):
        for view in (lambda x: x.unbind(0)[-1], lambda x: x.split(1)[0], lambda x: x.chunk(2)[1], lambda x: x[0]):
            base = torch.ones(2, 4, requires_grad=True) * 1
            seen = view(base)
            write(base)
            found.append(flags(seen))
    return found


@pytest.mark.parametrize("rows, columns, wanted", [(1, 0, 0), (1, 0, 2), (0, 3, 0), (2, 0, 3), (0, 3, 2), (2, 3, 0)])
def test_searching_in_nothing_and_for_nothing(rows, columns, wanted):
    torch = pytest.importorskip("torch")
    for right in (False, True):
        found, expected = (
            library.searchsorted(library.zeros(rows, columns), library.ones(rows, wanted), right=right).tolist()
            for library in (tg, torch)
        )
        assert found == expected
