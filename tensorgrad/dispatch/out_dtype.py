"""The dtypes of `out=` in which each op can store its result, and PyTorch's messages for the others.

There are three rules in PyTorch: pointwise ops *cast* their result to any dtype of the same or a higher category; other
ops need an `out` of their result's *own* dtype; a few compute in the dtype of `out` from the start. The tables list ops
that do not follow the rule of their kind, or have their own message.

In the messages, `{want}` and `{have}` are PyTorch's names of the dtypes of the result and of `out` (`Float`),
`{c_want}` and `{c_have}` their names in C++ (`float`).
"""

from __future__ import annotations

from tensorgrad import dtypes
from tensorgrad.dtypes import c_type, scalar_type
from tensorgrad.tensor import Tensor

_CAST_WORDS = "result type {want} can't be cast to the desired output type {have}"
_OWN_WORDS = "Expected out tensor to have dtype {c_want}, but got {c_have} instead"
_EXPECTED = "expected scalar type {want} but found {have}"
_FOUND = "Found dtype {have} but expected {want}"
_RUNNING = "expected scalar_type {want} but found {have}"
_ARRAY_NORM = "expected out tensor dtype {want} but got: {have}"
_EXTREME = "Expected the dtype for input and out to match, but got {want} for input's dtype and {have} for out's dtype."
_LOGICAL = "{name} does not support non-boolean outputs."
_SAME_SCALARS = "{name}(): self and result must have the same scalar type"

# Ops that need their result's own dtype; a tuple has a message for each of several results.
_OWN: dict[str, str | tuple[str, ...]] = {
    **dict.fromkeys(
        ("abs", "bitwise_not", "ceil", "conj_physical", "floor", "frac", "gelu", "hardshrink", "neg", "round", "sgn",
         "sign", "softplus", "softshrink", "trunc"), _FOUND
    ),
    **dict.fromkeys(("amax", "amin"), _EXTREME),
    **dict.fromkeys(("diff", "logcumsumexp", "running_extreme"), _RUNNING),
    **dict.fromkeys(("dot", "matmul", "vdot"), "result dtype {have} does not match input dtype {want}"),
    **dict.fromkeys(("inner", "tensordot"),
                    "tensordot: Expected the output tensor to have dtype {want}, but got an output tensor with dtype "
                    "{have}"),
    **dict.fromkeys(("isneginf", "isposinf", "signbit"), _LOGICAL),
    **dict.fromkeys(("log_sigmoid", "native_batch_norm", "solve_triangular"), _EXPECTED),
    **dict.fromkeys(("matrix_norm", "nuclear_norm"), f"linalg.matrix_norm {_ARRAY_NORM}"),
    **dict.fromkeys(("nanquantile", "quantile"), "quantile() out tensor must be same dtype as the input tensor"),
    "addbmm": "self and mat2 must have the same dtype, but got {have} and {want}",
    "complex": "Expected object of scalar type {want} but got scalar type {have} for argument 'out'",
    "float_power": "the output given to {name} has dtype {have} but the operation's result requires dtype {want}",
    "frexp": ("torch.frexp() expects mantissa to have dtype {c_want} but got {c_have}",
              "torch.frexp() expects exponent to have {c_want} dtype but got {c_have}"),
    "hash_tensor": "Expected result to be of dtype uint64, but got {have}",
    "heaviside": "{name} is not yet implemented for tensors with different dtypes.",
    "histc": "torch.histogram: input tensor and hist tensor should have the same dtype, but got input {c_want} and "
              "hist {c_have}",
    "histogram": ("torch.histogram: input tensor and hist tensor should have the same dtype, but got input {c_want} "
                  "and hist {c_have}",
                  "torch.histogram: input tensor and bin_edges tensor should have the same dtype, but got input "
                  "{c_want} and bin_edges {c_have} for dimension 0"),
    "index_select": _SAME_SCALARS,
    "kthvalue": ("output values must be of same type as input", "output indices must be of scalar type {want}"),
    "linalg_norm": f"linalg.norm {_ARRAY_NORM}",
    "masked_select": _SAME_SCALARS,
    "median_dim": ("Expected tensor for 'values' to have the same type as tensor for argument #2 'self'; but type "
                   "torch.{have}Tensor does not equal torch.{want}Tensor (while checking arguments for median)",
                   "Expected tensor for argument #1 'indices' to have scalar type {want}; but got torch.{have}Tensor "
                   "instead (while checking arguments for median)"),
    "mode": ("expected scalar type '{want}' but got '{have}' for values output",
              "expected scalar type '{want}' but got '{have}' for indices output"),
    "multi_dot": "multi_dot(): expected out tensor to have dtype {c_want} but got {c_have}",
    "mv": "addmv input tensors must have the same dtype, but got {have}, {want}, and {want}",
    "nan_to_num": "{name}: dtype of out: {have} should be same as input: {want}",
    "narrow_copy": "Expected self.dtype() == output.dtype() to be true, but got false.  (Could this error message be "
                   "improved?  If so, please report an enhancement request to PyTorch.)",
    "ormqr": "torch.ormqr: Expected input and result to have the same dtype, but input has dtype{want} and result has "
             "dtype {have}",
    "searchsorted": "torch.searchsorted(): output tensor's dtype is wrong, it can only be Int(int32) or Long(int64) "
                    "depending on whether out_int32 flag is True, but we got output tensor's dtype {have} and "
                    "out_int32 flag is {int32}",
    "take": "take(): self and out expected to have the same dtype, but got self.dtype = {want} and out.dtype = {have}",
    "vecdot": "linalg.vecdot: Expected out of dtype{want} but found {have}",
    "where": "Expected out type to be {want} but got {have}",
}  # fmt: skip

# Ops that cast although they are not pointwise.
_CAST = {
    **dict.fromkeys(
        ("addr", "fft_c2c", "fft_c2r", "fft_r2c", "kron", "normal", "normalize", "outer", "std", "var"), _CAST_WORDS
    ),
    **dict.fromkeys(("cat", "stack"), "torch.cat(): input types can't be cast to the desired output type {have}"),
    **dict.fromkeys(("max_all", "min_all"),
                    "Expected canCast( typeMetaToScalarType(self.dtype()), typeMetaToScalarType(out.dtype())) to be "
                    "true, but got false.  (Could this error message be improved?  If so, please report an enhancement "
                    "request to PyTorch.)"),
    "ldexp": "ldexp can't be cast to the desired output type {have}",
    "logsumexp": "logsumexp(): Expected floating point type for result tensor, but got: {have}",
}  # fmt: skip
_SAFELY: dict[str, tuple[str, ...]] = {  # op -> its name in the message, and those of the results
    **{name: (name, "result") for name in ("cholesky", "cholesky_inverse", "cholesky_solve", "matrix_power",
                                           "tensorinv", "tensorsolve")},
    **{name: (f"linalg.{name}", "result") for name in ("cond", "pinv")},
    **{name: (f"torch.linalg.{name}", "result") for name in ("householder_product", "matrix_rank")},
    "eig": ("torch.linalg.eig", "eigenvalues", "eigenvectors"),
    "eigvals": ("torch.linalg.eigvals", "eigenvalues"),
    "geqrf": ("torch.geqrf", "a", "tau"),
    "lstsq": ("torch.linalg.lstsq", "solution", "solution", "rank", "singular_values"),
    "orgqr": ("torch.linalg.householder_product", "result"),
}  # fmt: skip

_ANY = {"lu", "split_copy"}  # ops that copy even if values are lost

# Sums and products, which are computed in the dtype of `out`; the message if `dtype` is another.
_IN_DTYPE_OF_OUT = {
    **dict.fromkeys(("cumprod", "cumsum", "mean", "prod", "sum"), _OWN_WORDS),
    "nansum": "nansum: provided dtype must match dtype of result. Got {have} and {want}.",
}


def in_dtype_of_out(op, args: tuple, out) -> tuple:
    """The arguments of a sum or product with `out=`: it is computed in that dtype unless another is given.

    Raises: RuntimeError if `dtype` is not that of `out`, or for a mean that is not of a floating-point dtype;
        NotImplementedError for such a nansum.
    """
    if op.name not in _IN_DTYPE_OF_OUT or not isinstance(out, Tensor) or not isinstance(args[0], Tensor):
        return args
    at, given = [p.name for p in op.params].index("dtype"), args[0].dtype
    if args[at] is not None:
        if args[at] is not out.dtype:
            raise RuntimeError(_said(_IN_DTYPE_OF_OUT[op.name], op.name, out.dtype, args[at]))
        return args
    if op.name == "mean":
        if given.category < dtypes.FLOATING:  # refused later, since no dtype was given
            return args
        if out.dtype.category < dtypes.FLOATING:
            raise RuntimeError(_said(_CAST_WORDS, op.name, out.dtype, dtypes.float32))
    if op.name == "nansum" and not out.dtype.is_floating_point:
        raise NotImplementedError(f"\"nansum_cpu\" not implemented for '{scalar_type(out)}'")
    return (*args[:at], out.dtype, *args[at + 1 :])


def check_own_dtype(name: str, out: Tensor, result: Tensor, inputs: tuple, nr: int, pointwise: bool) -> None:
    """Raises: RuntimeError (TypeError for `cat`) if the op cannot store result number `nr` in the dtype of `out`."""
    have, want = out.dtype, result.dtype
    if name == "abs" and inputs and inputs[0].dtype.is_complex:  # PyTorch's kernel computes it in complex numbers first
        want, casts = (inputs[0].dtype, False) if have.is_complex else (want, True)
    else:
        casts = name not in _OWN and (pointwise or name in _CAST or name in _SAFELY)
    if have is want or name in _ANY or (casts and want.category <= have.category):
        return
    words: str | tuple[str, ...] = _CAST.get(name, _CAST_WORDS) if casts else _OWN.get(name, _OWN_WORDS)
    if name in _SAFELY:
        start, *results = _SAFELY[name]
        words = f"{start}: Expected {results[nr]} to be safely castable from {{want}} dtype, but got {results[nr]} "
        words += "with dtype {have}"
    words = words if isinstance(words, str) else words[nr]
    kind = TypeError if name in ("cat", "stack") else RuntimeError
    raise kind(_said(words, name, have, want))


def _said(words: str, name: str, have: dtypes.dtype, want: dtypes.dtype) -> str:
    return words.format(
        name=name, have=scalar_type(have), want=scalar_type(want), c_have=c_type(have),
        c_want=c_type(want), int32=want is dtypes.int32,
    )  # fmt: skip
