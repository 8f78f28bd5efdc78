"""Writes to expanded tensors, of a tensor to itself, and to all of a tensor by an index."""

import warnings

from tests.support.alike import alike

EXPANDED = {
    "index_fill_": "x.index_fill_(1, torch.tensor([0, -1]), 5.0)",
    "index_fill_ of rows": "x.index_fill_(0, torch.tensor([0]), 5.0)",
    "index_fill_ by a tensor": "x.index_fill_(1, torch.tensor(1), torch.tensor(7.0))",
    "index_fill_ of nothing": "x.index_fill_(1, torch.tensor([], dtype=torch.int64), 5.0)",
    "index_fill_ out of range": "x.index_fill_(1, torch.tensor([3]), 5.0)",
    "masked_fill_": "x.masked_fill_(torch.tensor([[True, False, True], [False, False, False]]), 5.0)",
    "index_put_": "x.index_put_((torch.tensor([0]),), torch.tensor(5.0))",
    "fill_": "x.fill_(2.0)", "zero_": "x.zero_()", "exp_": "x.exp_()", "add_": "x.add_(1)",
    "index_add_": "x.index_add_(1, torch.tensor([0]), torch.ones(2, 1))",
    "index_copy_": "x.index_copy_(1, torch.tensor([0]), torch.ones(2, 1))",
    "itself": "x.copy_(x)", "a view of itself": "x.copy_(x[None][0])", "a copy": "x.copy_(x.clone())",
    "[...] = itself": "x.__setitem__(..., x)", "[None] = itself": "x.__setitem__(None, x)",
    "[0] = number": "x.__setitem__(0, 3.0)",
}  # fmt: skip


def outcome(torch, text, x):
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            eval(text, {"torch": torch, "x": x})
            raised = ""
        except (RuntimeError, IndexError) as error:
            raised = f"{type(error).__name__} {str(error)[:50]}"
    return raised, sorted({str(w.message)[:40] for w in warned}), x


@alike
def test_expanded_tensors(torch):
    return [(name, *outcome(torch, text, torch.ones(1, 3).expand(2, 3))) for name, text in EXPANDED.items()]


@alike
def test_a_write_to_all_of_a_tensor_is_no_write_to_a_view(torch):
    """So a second backward pass finds nothing that was freed."""
    found = []
    for index in ("...", ":", ":, :", "0:2", "()", "..., :", "0", ":1", "None"):
        for value in ("2.0", "torch.ones(3, requires_grad=True)", "torch.ones(2, 3)"):
            x = torch.ones(2, 3, requires_grad=True)
            z = x * 1
            try:
                exec(f"z[{index}] = {value}", {"torch": torch, "z": z})
            except RuntimeError as error:
                found.append((index, value, str(error)[:40]))
                continue
            z.sum().backward(inputs=[x])
            found.append((index, value, z.clone(), x.grad, "CopySlices" in z.grad_fn.name()))
    z = torch.ones(2, requires_grad=True).neg()
    z[...] = -1
    z.sum().backward()
    z.sum().backward()
    return found


@alike
def test_inference_tensors_are_written_after_detach_only(torch):
    with torch.inference_mode():
        x, y = torch.ones(3), torch.ones(3)
    found = [
        x.detach().is_inference(),
        x.detach().add_(1).clone(),
        x.detach().mul_(torch.full((3,), 2.0)).clone(),
        x.clone(),
    ]
    for text in ("x.add_(1)", "x.set_(torch.zeros(3))", "x.detach().requires_grad_()"):
        try:
            eval(text, {"x": x, "torch": torch})
        except RuntimeError as error:
            found.append(str(error)[:60])
    with torch.inference_mode():
        y.set_(torch.zeros(2))
    return [*found, y]
