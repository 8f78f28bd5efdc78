"""Products of groups: a mixture of experts."""

import itertools

import pytest

from tests.support.alike import alike, error

SHAPES = {
    "rows": ((6, 16), (3, 16, 24)),
    "columns": ((3, 8, 16), (16, 24)),
    "inner": ((8, 24), (24, 16)),
}


@alike
def test_products_of_groups(torch):
    found = []
    for (name, (a, b)), dtype in itertools.product(SHAPES.items(), (torch.float32, torch.bfloat16)):
        total = 6 if name == "rows" else 24
        for ends in ([total // 3, total // 3, total], [0, 0, total]):
            torch.manual_seed(0)
            offs = torch.tensor(ends, dtype=torch.int32)
            x, y = torch.randn(*a).to(dtype).requires_grad_(), torch.randn(*b).to(dtype).requires_grad_()
            result = torch.nn.functional.grouped_mm(x, y, offs=offs)
            result.float().square().sum().backward()
            found += [result, torch._grouped_mm(x, y, offs), x.grad, y.grad, torch.ops.aten._grouped_mm(x, y, offs)]
    found.append(torch._grouped_mm(torch.ones(2, 4, 8), torch.ones(2, 8, 4)))
    return found


def test_float16_is_within_one_rounding():
    """PyTorch rounds products of float16 in more than one way, by their sizes."""
    import tensorgrad as torch

    torch.manual_seed(0)
    x, y, offs = torch.randn(6, 16).half(), torch.randn(3, 16, 24).half(), _ends(torch)
    exact = torch._grouped_mm(x.float(), y.float(), offs)
    assert torch.allclose(torch._grouped_mm(x, y, offs).float(), exact, rtol=2**-11, atol=2**-14)


def test_rows_beyond_the_last_group_are_0():
    import tensorgrad as torch

    offs = torch.tensor([1, 3], dtype=torch.int32)
    rows = torch._grouped_mm(torch.ones(5, 2), torch.ones(2, 2, 3), offs)
    assert rows.tolist() == [[2.0] * 3] * 3 + [[0.0] * 3] * 2
    assert torch._grouped_mm(torch.ones(2, 3, 2), torch.ones(2, 5), offs)[:, 3:].tolist() == [[0.0] * 2] * 3
    none = torch.zeros(0, dtype=torch.int32)
    assert torch._grouped_mm(torch.ones(3, 4), torch.ones(4, 5), none).shape == (0, 3, 5)


WRONG = {
    "float64": lambda t: t._grouped_mm(t.ones(6, 16).double(), t.ones(3, 16, 24).double(), offs=_ends(t)),
    "dtypes": lambda t: t._grouped_mm(t.ones(6, 16), t.ones(3, 16, 24).half(), offs=_ends(t)),
    "1-d": lambda t: t._grouped_mm(t.ones(16), t.ones(3, 16, 24), offs=_ends(t)),
    "no offsets": lambda t: t._grouped_mm(t.ones(6, 16), t.ones(3, 16, 24)),
    "offsets of 3-d": lambda t: t._grouped_mm(t.ones(3, 6, 16), t.ones(3, 16, 24), offs=_ends(t)),
    "sizes": lambda t: t._grouped_mm(t.ones(6, 16), t.ones(3, 8, 24), offs=_ends(t)),
    "groups": lambda t: t._grouped_mm(t.ones(6, 16), t.ones(2, 16, 24), offs=_ends(t)),
    "bias": lambda t: t._grouped_mm(t.ones(6, 16), t.ones(3, 16, 24), offs=_ends(t), bias=t.ones(3, 24)),
    "int64": lambda t: t._grouped_mm(t.ones(6, 16), t.ones(3, 16, 24), offs=_ends(t).long()),
    "out_dtype": lambda t: t._grouped_mm(t.ones(6, 16), t.ones(3, 16, 24), offs=_ends(t), out_dtype=t.bfloat16),
}


def _ends(torch):
    return torch.tensor([2, 2, 6], dtype=torch.int32)


@pytest.mark.parametrize("case", WRONG)
def test_what_does_not_fit_is_refused(case):
    import tensorgrad

    torch = pytest.importorskip("torch")
    ours, theirs = error(lambda: WRONG[case](tensorgrad)), error(lambda: WRONG[case](torch))
    assert ours.partition(":")[0] == theirs.partition(":")[0] == "RuntimeError"


@pytest.mark.parametrize("ends", [[3, 1, 6], [2, 4, 7], [-1, 2, 6]])
def test_offsets_beyond_the_rows_are_refused(ends):
    import tensorgrad as torch

    with pytest.raises(RuntimeError, match="offsets that ascend from 0 to 6"):
        torch._grouped_mm(torch.ones(6, 2), torch.ones(3, 2, 2), torch.tensor(ends, dtype=torch.int32))
