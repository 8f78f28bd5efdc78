"""`unique(dim)` of rows with nan, which have no order: PyTorch's result is that of C++'s sort."""

from tests.support.alike import alike


@alike
def test_rows_with_nan_are_where_torch_has_them(torch):
    """Few rows, in every floating-point dtype, with nan first, in the middle and everywhere."""
    nan = float("nan")
    rows = [[nan, 1.0], [2, 3], [nan, 1], [0, 1], [2, 3], [1, nan], [-1, 0], [3, nan]]
    seen = []
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        x = torch.tensor(rows, dtype=dtype)
        for given, dim in (
            (x, 0), (x.t().contiguous(), 1), (x[:, 0], 0), (torch.tensor([3, 1, 0, nan, 2, 1], dtype=dtype), 0),
            (torch.tensor([[nan, nan], [nan, nan], [0, 0], [0, 0]], dtype=dtype), 0), (x[3:5], 0),
        ):  # fmt: skip
            seen.append(torch.unique(given, dim=dim, return_inverse=True, return_counts=True))
    return seen


@alike
def test_make_tensor_has_a_memory_format(torch):
    """The strides of the format, and PyTorch's errors."""
    seen = []
    for memory_format in (torch.channels_last, torch.channels_last_3d, torch.contiguous_format):
        for shape in ((2, 3, 4, 5), (2, 3, 4, 5, 6), (2, 3)):
            for noncontiguous in (False, True):
                options = {"memory_format": memory_format, "noncontiguous": noncontiguous}
                try:
                    made = torch.testing.make_tensor(shape, dtype=torch.float32, device="cpu", **options)
                except (RuntimeError, ValueError) as error:
                    seen.append(type(error).__name__)
                else:
                    seen.append(made.stride())
    return seen
