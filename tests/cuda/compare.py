"""Comparison of tensors on the GPU with torch's on the CPU."""

from tests.support.compare import assert_close


def assert_close_on_gpu(ours, theirs, *tolerance, **options) -> None:
    """Asserts that a tensor is on the GPU and close to one of torch. Parameters are those of assert_close."""
    assert ours.device.type == "cuda"
    assert_close(ours, theirs, *tolerance, **options)
