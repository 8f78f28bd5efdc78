"""Masks of `torch.masked`: every layout of a mask with every layout of an input, and the mask of a result."""

from tests.support.alike import alike

REDUCTIONS = (
    "sum", "prod", "amax", "amin", "argmax", "argmin", "mean", "median", "norm", "var", "std", "logsumexp"
)  # fmt: skip


def refusal(call):
    try:
        return call()
    except (ValueError, IndexError, RuntimeError) as error:
        return type(error).__name__, str(error).splitlines()[0].replace("tensorgrad", "torch")


@alike
def test_masks_take_the_layout_of_the_input(torch):
    x = torch.arange(6.0).reshape(2, 3)
    whole = torch.tensor([[True, False, True], [False, False, False]])
    found = []
    for mask in (whole, whole.to_sparse(), whole.to_sparse_csr(), whole[0], whole[0].to_sparse(), whole[:, :1].int()):
        for input in (x, x.to_sparse(), x.to_sparse_csr()):
            canonical = torch.masked._input_mask(input, mask=mask)
            found.append((str(canonical.layout), canonical.dtype, canonical.to_dense()))
        found.append(torch.masked.sum(x, 1, mask=mask))
    return found


@alike
def test_the_mask_of_a_result(torch):
    x = torch.arange(6.0).reshape(2, 3)
    mask = torch.tensor([[True, False, True], [False, False, False]])
    found = []
    for name in REDUCTIONS:
        op, order = getattr(torch.masked, name), (2.0,) if name == "norm" else ()
        found += [torch.masked._output_mask(op, x, *order, dim, mask=mask) for dim in (0, 1, -1)]
        found.append(torch.masked._output_mask(op, x, *order, dim=1, keepdim=True, mask=mask[0]))
    for name in ("softmax", "log_softmax", "softmin", "normalize", "cumsum", "cumprod"):
        found.append(torch.masked._output_mask(getattr(torch.masked, name), x, dim=1, mask=mask.to_sparse()))
    return found


@alike
def test_what_is_not_a_mask_is_refused(torch):
    x = torch.zeros(2, 3)
    return [
        refusal(lambda: torch.masked._input_mask(x)),
        refusal(lambda: torch.masked._input_mask(x, mask=torch.ones(2, 2, 3))),
        refusal(lambda: torch.masked._input_mask(x, mask=torch.ones(2, 2))),
        refusal(lambda: torch.masked._output_mask(torch.sin, x, mask=torch.ones(2, 3))),
        refusal(lambda: torch.masked._output_mask(3, x, mask=torch.ones(2, 3))),
        [torch.masked._canonical_dim(dim, 2) for dim in (None, 1, (1, -2), -1)],
        refusal(lambda: torch.masked._canonical_dim((0, 0), 2)),
        refusal(lambda: torch.masked._canonical_dim(2, 2)),
    ]
