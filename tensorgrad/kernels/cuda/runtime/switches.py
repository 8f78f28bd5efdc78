"""The settings of products and convolutions on GPUs, behind `torch.backends.cuda.matmul` and `.cudnn`."""

from __future__ import annotations

from tensorgrad.settings import SETTINGS


class Matmul:
    """Precisions that matrix products may use: `torch.backends.cuda.matmul`.

    >>> torch.backends.cuda.matmul.allow_tf32
    False
    """

    __slots__ = (
        "allow_bf16_reduced_precision_reduction", "allow_fp16_accumulation",
        "allow_fp16_reduced_precision_reduction",
    )  # fmt: skip

    allow_fp16_reduced_precision_reduction: bool
    allow_bf16_reduced_precision_reduction: bool
    allow_fp16_accumulation: bool

    def __init__(self):
        # Whether partial sums of 16-bit floats may be added in 16 bits.
        self.allow_fp16_reduced_precision_reduction = self.allow_bf16_reduced_precision_reduction = True
        self.allow_fp16_accumulation = False  # all sums of float16 in float16

    @property
    def allow_tf32(self) -> bool:
        """Whether float32 may be rounded to TF32, with 10 bits of mantissa, before it is multiplied.

        Shared with `torch.set_float32_matmul_precision`: "high" and "medium" allow it.
        """
        return SETTINGS.matmul_precision != "highest"

    @allow_tf32.setter
    def allow_tf32(self, allowed: bool) -> None:
        if not isinstance(allowed, bool):
            raise RuntimeError(f"set_allow_tf32_cublas expects a bool, but got {type(allowed).__name__}")
        SETTINGS.matmul_precision = "high" if allowed else "highest"

    @property
    def fp32_precision(self) -> str:
        """The same setting as a string: "tf32", or "ieee" (also "none") for full float32."""
        return "tf32" if self.allow_tf32 else "none"

    @fp32_precision.setter
    def fp32_precision(self, precision: str) -> None:
        if precision not in ("ieee", "tf32", "none"):
            raise RuntimeError(f"Invalid fp32 precision: expected 'ieee', 'tf32' or 'none', got {precision!r}")
        self.allow_tf32 = precision == "tf32"


class Cudnn:
    """`torch.backends.cudnn`: whether convolutions may run on cuDNN, and how."""

    __slots__ = ("allow_tf32", "benchmark", "benchmark_limit", "deterministic", "enabled")

    def __init__(self):
        self.enabled = True
        self.benchmark = False  # try all algorithms on the first call with new shapes, instead of cuDNN's heuristic
        self.deterministic = False  # use only algorithms that give bitwise identical results every time
        self.allow_tf32 = True
        self.benchmark_limit = 10  # algorithms tried; 0 for all


matmul, cudnn = Matmul(), Cudnn()
