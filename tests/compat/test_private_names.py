"""Names of PyTorch's that are not in its documentation, but that programs use: what they do."""

import importlib

import pytest

from tests.support.alike import alike


def module(torch, name):
    return importlib.import_module(f"{torch.__name__}.{name}")


@alike
def test_masks_of_masked_functions(torch):
    masked = module(torch, "masked")._ops if torch.__name__ == "torch" else module(torch, "masked")
    x = torch.arange(6.0).view(2, 3)
    made = []
    for mask in ([[True, False, True], [False] * 3], [True, False, True], [[1.0], [0.0]]):
        mask = torch.tensor(mask)
        made.append(masked._input_mask(x, mask=mask))
        for name, args, options in (
            ("sum", (1,), {}), ("amax", (0,), {"keepdim": True}), ("norm", (2, 1), {}), ("mean", (), {}),
            ("softmax", (1,), {}), ("var", ((0, 1),), {}),
        ):  # fmt: skip
            op = getattr(module(torch, "masked"), name)
            made.append(masked._output_mask(op, x, *args, mask=mask, **options))
    return made


@alike
def test_sparse_tensors_from_their_parts(torch):
    build = module(torch, "_utils")._rebuild_sparse_tensor
    x = torch.tensor([[1.0, 3.0], [0.0, 2.0]])
    coo, csr, csc = x.to_sparse(), x.to_sparse_csr(), x.to_sparse_csc()
    made = [
        build(torch.sparse_coo, (coo.indices(), coo.values(), coo.shape)),
        build(torch.sparse_coo, (coo.indices(), coo.values(), coo.shape, True)),
        build(torch.sparse_csr, (csr.crow_indices(), csr.col_indices(), csr.values(), csr.shape)),
        build(torch.sparse_csc, (csc.ccol_indices(), csc.row_indices(), csc.values(), csc.shape)),
    ]
    return [(str(x.layout), x.to_dense()) for x in made], [x.is_coalesced() for x in made[:2]]


@alike
def test_causal_biases(torch):
    bias, F = module(torch, "nn.attention.bias"), torch.nn.functional
    made = []
    for rows, columns in ((3, 3), (2, 4)):
        q, k = torch.randn(1, 2, rows, 4), torch.randn(1, 2, columns, 4)
        for make in (bias.causal_upper_left, bias.causal_lower_right):
            b = make(rows, columns)
            made.append((repr(b), F.scaled_dot_product_attention(q, k, k, b), b.variant.name))
            with pytest.raises(ValueError, match="causal=True"):
                F.scaled_dot_product_attention(q, k, k, b, is_causal=True)
        with pytest.raises(AssertionError):
            bias.causal_upper_left(3)
    return made


@alike
def test_arguments_by_name(torch):
    normalize = module(torch, "fx.operator_schemas").normalize_function
    x = torch.ones(2, 2)
    F = torch.nn.functional
    found = []
    for function, args, kwargs in (
        (torch.mm, (x, x), {}), (F.relu, (x,), {}), (F.layer_norm, (x, (2,)), {"eps": 1e-3}),
        (torch.flatten, (x, 1), {}),
    ):  # fmt: skip
        for only in (True, False):
            types = tuple(map(type, args))
            made = normalize(function, args, kwargs, types, normalize_to_only_use_kwargs=only)
            found.append((len(made.args), [name for name in made.kwargs if name not in ("self", "input")]))
    return found


@alike
def test_gradients_of_convolutions_in_functional(torch):
    grad = torch.nn.functional.grad
    return grad.conv1d_weight(torch.ones(1, 1, 4), (1, 1, 2), torch.ones(1, 1, 3))


def test_functions_by_the_name_of_pytorchs_own_modules():
    import tensorgrad
    from tensorgrad import _VF

    assert _VF.lstm is tensorgrad.lstm and _VF.dropout_ is tensorgrad.dropout_
    with pytest.raises(AttributeError, match="no_such_function"):
        _VF.no_such_function


@alike
def test_the_accelerator(torch):
    if torch.accelerator.is_available():
        pytest.skip("there is one")
    with pytest.raises(RuntimeError, match="none is available"):
        torch._C._get_accelerator(True)
    return repr(torch._C._get_accelerator()), repr(torch._C._get_accelerator(check=False))
