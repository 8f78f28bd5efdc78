"""`torch.cuda.jiterator`: the name is here, and says what to use instead."""

from __future__ import annotations

__all__: list[str] = []


def _create_jit_fn(code_string: str, **kwargs):
    """Would make an op of a line of CUDA C. Raises: NotImplementedError."""
    raise NotImplementedError(
        "torch.cuda.jiterator makes no kernels here; write the function with tensor ops, or call cupy.RawKernel in a "
        "torch.autograd.Function"
    )


def _create_multi_output_jit_fn(code_string: str, num_outputs: int, **kwargs):
    """Would make an op with several results of a line of CUDA C. Raises: NotImplementedError."""
    _create_jit_fn(code_string)
