"""`torch.ops`: operators under the names of PyTorch's registry, as in `torch.ops.aten.add.Tensor(x, y)`.

Each is the same function as `torch.<name>`, `torch.nn.functional.<name>` or `torch.linalg.<name>`, or the method of
`Tensor`. Overloads exist in name only, since one function accepts all forms of arguments.
"""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import tensorgrad
from tensorgrad.rows.kernel_tables import OPS
from tensorgrad.rows.signature import arguments_of
from tensorgrad.rows.switches import DISPATCH
from tensorgrad.system.lazy_modules import whole

# PyTorch's operators that exist here: overloads -> the operators with exactly these. Those with a * PyTorch makes of
# others, or does not count as operators: a class with `__torch_dispatch__` sees what they call.
_OVERLOADS: dict[str, str] = {
    "default out": """
        _int_mm abs absolute* acos acosh adaptive_avg_pool1d* adaptive_avg_pool2d*
        adaptive_avg_pool3d* addbmm addcdiv addcmul addmv addr
        affine_grid_generator alias_copy amax amin aminmax angle arccos* arccosh* arcsin* arcsinh* arctan*
        arctan2* arctanh* argmax argmin as_strided_copy as_strided_scatter asin asinh atan atan2 atanh
        avg_pool1d* avg_pool2d avg_pool3d binary_cross_entropy_with_logits bincount binomial bitwise_not
        block_diag cat ceil celu chain_matmul* channel_shuffle cholesky cholesky_inverse cholesky_solve clone
        column_stack* complex concat* concatenate* conj_physical* constant_pad_nd conv_tbc convolution cos cosh
        cross* cummax cummin cumprod cumsum deg2rad detach_copy diag* diag_embed diagonal_copy diagonal_scatter
        diff* digamma dist dot dstack* elu embedding empty_like empty_permuted empty_strided erf erfc erfinv exp
        exp2 expand_copy expm1 fft_fft fft_fft2 fft_fftfreq fft_fftn fft_hfft fft_hfft2 fft_hfftn fft_ifft
        fft_ifft2 fft_ifftn fft_ihfft fft_ihfft2 fft_ihfftn fft_irfft fft_irfft2 fft_irfftn fft_rfft fft_rfft2
        fft_rfftfreq fft_rfftn fix* flip floor fmax fmin frac from_file full full_like gather gcd gelu ger*
        grid_sampler_2d grid_sampler_3d hardshrink hardsigmoid hardswish hardtanh hash_tensor heaviside histc
        hstack* hypot i0 igamma igammac index_add index_copy index_reduce index_select inner* inverse* isinf
        isnan isneginf isposinf kron* lcm leaky_relu lgamma linalg_cholesky linalg_cross linalg_det linalg_eig
        linalg_eigvals linalg_eigvalsh linalg_householder_product linalg_inv linalg_ldl_factor
        linalg_ldl_factor_ex linalg_ldl_solve linalg_lstsq linalg_lu linalg_lu_factor linalg_lu_factor_ex
        linalg_lu_solve linalg_matmul linalg_matrix_exp linalg_matrix_power linalg_multi_dot linalg_qr
        linalg_slogdet linalg_solve linalg_solve_ex linalg_solve_triangular linalg_svdvals linalg_tensorinv
        linalg_tensorsolve linalg_vecdot linalg_vector_norm linear log log10 log1p log2 logaddexp logaddexp2
        logcumsumexp logical_and logical_not logical_or logical_xor logit logsumexp lu_solve* lu_unpack
        masked_scatter masked_select matmul matrix_power* maximum minimum mish msort* multinomial mv mvlgamma
        nan_to_num nanmean* nansum narrow_copy native_batch_norm native_dropout native_group_norm
        native_layer_norm neg negative* new_empty new_empty_strided new_full new_ones new_zeros nextafter
        nonzero nonzero_static ones ones_like orgqr* ormqr outer* permute_copy pixel_shuffle pixel_unshuffle
        poisson polar polygamma put rad2deg reciprocal relu renorm repeat roll rot90 row_stack* rsqrt
        scalar_tensor scatter_add segment_reduce select_scatter sgn sigmoid sign signbit silu sin sinc sinh
        slice_scatter slogdet* softplus softshrink special_airy_ai special_bessel_j0 special_bessel_j1
        special_bessel_y0 special_bessel_y1 special_digamma special_entr special_erf special_erfc special_erfcx
        special_erfinv special_exp2 special_expit special_expm1 special_gammainc special_gammaincc
        special_gammaln special_i0 special_i0e special_i1 special_i1e special_log1p special_log_ndtr
        special_logit special_logsumexp special_modified_bessel_i0 special_modified_bessel_i1
        special_modified_bessel_k0 special_modified_bessel_k1 special_multigammaln special_ndtr special_ndtri
        special_polygamma special_psi special_round special_scaled_modified_bessel_k0
        special_scaled_modified_bessel_k1 special_sinc special_spherical_bessel_j0 split_with_sizes_copy sqrt
        square* stack t_copy take take_along_dim* tan tanh tensordot* threshold trace tril tril_indices triu
        triu_indices trunc unfold_copy unsafe_split_with_sizes unsqueeze_copy vdot view_as_complex_copy
        view_as_real_copy vstack* zeros zeros_like
    """,
    "default": """
        _grouped_mm abs_ absolute_* acos_ acosh_ adaptive_max_pool1d* addbmm_ addcdiv_ addcmul_ addmm_
        addmv_ addr_ adjoint*
        allclose alpha_dropout* alpha_dropout_* arccos_* arccosh_* arcsin_* arcsinh_* arctan2_* arctan_*
        arctanh_* argwhere* as_strided as_strided_ asin_ asinh_ atan2_ atan_ atanh_ baddbmm_ batch_norm*
        bilinear* bitwise_not_ broadcast_tensors* broadcast_to* cartesian_prod* cauchy_ cdist* ceil_ celu_
        chunk* combinations* conj* conj_physical_ contiguous* conv_transpose1d* corrcoef* cos_ cosh_
        cosine_embedding_loss* cosine_similarity* cov*
        cross_entropy_loss* l1_loss* nll_loss_nd* pad* cumprod_ cumsum_ deg2rad_ det* detach detach_ diagflat*
        diagonal digamma_ dim* dropout* dropout_* elu_ embedding_renorm_ equal erf_ erfc_ erfinv_ exp2_ exp_
        expand expand_as* expm1_ exponential_ feature_alpha_dropout* feature_alpha_dropout_* feature_dropout*
        feature_dropout_* fft_fftshift fft_ifftshift fill_diagonal_* fix_* fliplr* flipud* floor_ frac_ gcd_
        geometric_ get_device* grid_sampler* group_norm* gru_cell* hardtanh_ heaviside_ hinge_embedding_loss*
        hypot_ i0_ igamma_ igammac_ imag* index_add_ index_copy_ index_reduce_ instance_norm* is_complex*
        is_conj* is_distributed* is_floating_point* is_inference* is_neg* is_nonzero* is_pinned is_same_size
        is_set_to is_signed* isclose* isfinite* isreal* item* kl_div* layer_norm* lcm_ ldexp_ leaky_relu_
        lgamma_ linalg_diagonal linalg_vander log10_ log1p_ log2_ log_ log_normal_ logdet* logical_and_
        logical_not_ logical_or_ logical_xor_ logit_ lstm_cell* margin_ranking_loss* masked_scatter_ matrix_exp*
        max_pool1d* max_pool1d_with_indices* max_pool2d* max_pool3d* mvlgamma_ nan_to_num_
        native_channel_shuffle* neg_ negative_* nextafter_ norm_except_dim* normal_ numel* one_hot*
        pairwise_distance* pdist* permute pin_memory pinverse* poisson_nll_loss* polygamma_ positive* prelu*
        put_ rad2deg_ ravel* real* reciprocal_ record_stream relu_ renorm_ requires_grad_* reshape* reshape_as*
        resize_ resize_as_ resolve_conj* resolve_neg* retain_grad* rms_norm* rnn_relu_cell* rnn_tanh_cell*
        rrelu* rrelu_* rsqrt_ scaled_dot_product_attention* scatter_add_ selu* selu_* sgn_ sigmoid_ sign_ sin_
        sinc_ sinh_ slice_inverse special_log_softmax special_softmax split_with_sizes sqrt_ square_*
        storage_offset* sum_to_size* swapaxes* swapaxes_* swapdims* swapdims_* t t_ tan_ tanh_ threshold_ tile*
        transpose_ tril_ triplet_margin_loss* triu_ trunc_ type_as* unfold uniform_ unsafe_chunk* unsqueeze
        unsqueeze_ vander* view_as* view_as_complex view_as_real zero_
    """,
    "Tensor Scalar": """
        add_ bitwise_and_ bitwise_or_ bitwise_xor_ bucketize copysign_ float_power_* floor_divide_ fmod fmod_ ge
        greater* greater_equal* gt le less* less_equal* lt mul_ multiply_* not_equal* remainder_ rsub
        searchsorted sub_ subtract_* true_divide_*
    """,
    "Scalar Tensor": """
        eq_ fill fill_ ge_ greater_* greater_equal_* gt_ le_ lerp lerp_ less_* less_equal_* lt_ masked_fill
        masked_fill_ ne_ not_equal_* pow_
    """,
    "default out x_scalar n_scalar": """
        special_chebyshev_polynomial_t special_chebyshev_polynomial_u special_chebyshev_polynomial_v
        special_chebyshev_polynomial_w special_hermite_polynomial_h special_hermite_polynomial_he
        special_laguerre_polynomial_l special_legendre_polynomial_p special_shifted_chebyshev_polynomial_t
        special_shifted_chebyshev_polynomial_u special_shifted_chebyshev_polynomial_v
        special_shifted_chebyshev_polynomial_w
    """,
    "int": "log_softmax select select_copy softmax transpose transpose_copy unbind unbind_copy unflatten*",
    "Tensor Scalar out": "add copysign mul multiply* sub true_divide*",
    "Tensor Scalar Scalar_Tensor": "bitwise_and bitwise_or bitwise_xor remainder result_type*",
    "default Tensor": "clamp_ clamp_max_ clamp_min_ clip_* narrow*",
    "default generator out": "rand rand_like randn randn_like randperm",
    "Tensor": "frexp slice_copy split_copy unsafe_split",
    "default Tensor out": "clamp clamp_max clamp_min clip*",
    "default out dtype": "addmm baddbmm bmm mm",
    "input data": "gru* lstm* rnn_relu* rnn_tanh*",
    "default Sequence": "atleast_1d* atleast_2d* atleast_3d*",
    "default dim dims out": "all any squeeze_copy",
    "default other_scalar self_scalar out": "special_xlog1py special_xlogy special_zeta",
    "default padding": "conv1d* conv2d* conv3d*",
    "default periodic out": "bartlett_window blackman_window hann_window",
    "default values": "kthvalue mode topk",
    "int array": "dsplit* hsplit* vsplit*",
    "x dx": "cumulative_trapezoid* trapezoid* trapz*",
    "Tensor Scalar Tensor_list": "eq ne",
    "Tensor Scalar Tensor_mode Scalar_mode out out_mode": "div divide*",
    "Tensor Tensor_Scalar Scalar_Tensor": "bitwise_left_shift bitwise_right_shift",
    "Tensor_Scalar Tensor": "bitwise_left_shift_ bitwise_right_shift_",
    "Tensor_Tensor Tensor_Scalar Scalar": "float_power* pow",
    "Tensor_Tensor Tensor_Scalar Scalar_Tensor default out": "linspace logspace",
    "default U": "linalg_svd svd*",
    "default dim correction": "std_mean var_mean",
    "default dim correction out": "std var",
    "default dim dim_values out": "median nanmedian",
    "default dim dims": "squeeze squeeze_",
    "default dim out": "mean nuclear_norm*",
    "default scalar out": "nanquantile* quantile*",
    "input": "conv_transpose2d* conv_transpose3d*",
    "int default": "size* stride*",
    "int_Tensor int_Scalar": "index_fill index_fill_",
    "two": "scatter_reduce scatter_reduce_",
    "IntList Tensor": "ctc_loss*",
    "Scalar ScalarOpt_dim ScalarOpt_dim_dtype out ScalarOpt_dtype": "norm",
    "Tensor Scalar_Other": "xlogy_",
    "Tensor Scalar_Other Scalar_Self OutTensor OutScalar_Self OutScalar_Other": "xlogy",
    "Tensor Tensor_mode Scalar Scalar_mode": "div_",
    "Tensor Tensor_mode Scalar_mode Scalar": "divide_*",
    "Tensor float": "bernoulli_",
    "Tensor out": "ldexp",
    "Tensor out Scalar": "subtract*",
    "Tensor self_Tensor self_int": "repeat_interleave",
    "Tensor sizes default": "split",
    "Tensor_Tensor Tensor_Scalar Scalar_Tensor": "isin",
    "Tensor_float float_Tensor Tensor_Tensor float_float out": "normal",
    "bins_tensor bin_ct": "histogram",
    "default L": "linalg_cholesky_ex",
    "default Q": "qr*",
    "default Scalar out": "floor_divide",
    "default Tensor int float": "copy_",
    "default Tensor low_dtype generator Tensor_generator low_generator_dtype out": "randint_like",
    "default X": "triangular_solve",
    "default a": "geqrf",
    "default atol_rtol_float atol_rtol_tensor out rcond_tensor out_rcond_tensor": "linalg_pinv",
    "default decimals": "round_",
    "default decimals out": "round",
    "default dim_IntList out": "count_nonzero",
    "default dim_int out": "prod",
    "default dtype": "view",
    "default dtype out": "view_copy",
    "default eigvals": "linalg_eigh",
    "default generator low low_generator out": "randint",
    "default hacked_twin": "index_put_",
    "default indexing": "meshgrid*",
    "default int_bins TensorList_bins": "histogramdd*",
    "default inverse": "linalg_inv_ex",
    "default m out": "eye",
    "default memory_format": "is_contiguous*",
    "default ord_str out": "linalg_norm",
    "default out hacked_twin": "index_put",
    "default out p Tensor": "bernoulli",
    "default p_str out": "linalg_cond",
    "default padding_idx": "embedding_bag*",
    "default periodic beta out": "kaiser_window",
    "default periodic periodic_alpha periodic_alpha_beta out": "hamming_window",
    "default stable": "argsort*",
    "default stable values_stable values Tensor": "sort",
    "default start start_step out": "arange",
    "default str_ord out": "linalg_matrix_norm",
    "default sublist": "einsum*",
    "default tol_tensor atol_rtol_tensor atol_rtol_float out out_tol_tensor": "linalg_matrix_rank",
    "device dtype other dtype_layout prim_Device prim_dtype prim_other": "to",
    "dim out": "frobenius_norm*",
    "dim_IntList default out": "sum",
    "from to default": "random_",
    "int intlist": "movedim*",
    "intlist int": "moveaxis*",
    "memory_format out": "empty",
    "other default dim dim_max out": "max",
    "other default dim dim_min out": "min",
    "scalarint scalararray array scalarrayint scalarrayarray tensorarrayint tensorarray": "gradient*",
    "sections indices tensor_indices_or_sections": "tensor_split*",
    "self ScalarOther ScalarSelf Scalar default": "where",
    "source_Storage_storage_offset source_Tensor default source_Storage source_Tensor_storage_offset": "set_",
    "src value reduce value_reduce": "scatter_",
    "step default out out_": "range",
    "using_ints": "flatten*",
    "value src reduce value_reduce": "scatter",
}  # fmt: skip


MADE_OF_OTHERS = frozenset(
    name[:-1] for names in _OVERLOADS.values() for name in names.split() if name.endswith("*")
)  # fmt: skip


def _slice(self: Any, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Any:
    """`self[start:end:step]` along a dimension."""
    if step < 1:
        raise RuntimeError("slice step must be positive")
    return self.movedim(dim, 0)[start:end:step].movedim(0, dim)


def _index(self: Any, indices: Any) -> Any:
    """`self` at indices of its first dimensions; None takes a dimension whole."""
    return self[tuple(slice(None) if index is None else index for index in indices)]


def _to_copy(self: Any, *, layout: Any = None, pin_memory: Any = None, **to: Any) -> Any:
    """`self.to(...)`, always as a copy."""
    if layout not in (None, self.layout):
        raise NotImplementedError(f"aten::_to_copy: use to_sparse or to_dense to change the layout to {layout}")
    copy = self.to(**{k: v for k, v in to.items() if v is not None}, copy=True)
    return copy.pin_memory() if pin_memory else copy


def _convolution_backward(
    grad_output: Any, input: Any, weight: Any, bias_sizes: Any, stride: Any, padding: Any, dilation: Any,
    transposed: bool, output_padding: Any, groups: int, output_mask: Any,
) -> tuple:  # fmt: skip
    """The gradients of `convolution`: those of its row, or None where the mask says that they are not needed."""
    dims = weight.ndim - 2
    known = {"stride": stride, "padding": padding, "dilation": dilation, "output_padding": output_padding}
    known = {name: tuple(value) * (dims // len(value)) for name, value in known.items()}
    known |= {"g": grad_output, "input": input, "weight": weight, "groups": groups}
    known |= {
        f"{name}_{what}": getattr(known[name], what) for name in ("input", "weight") for what in ("shape", "dtype")
    }
    known |= {"bias_shape": tuple(bias_sizes or ()), "bias_dtype": weight.dtype}
    formulas = OPS["conv_transpose" if transposed else "conv"].formulas
    return tuple(
        formulas[name](**{given: known[given] for given in arguments_of(formulas[name])}) if wanted else None
        for name, wanted in zip(("input", "weight", "bias"), output_mask, strict=True)
    )


REDUCTIONS = ("none", "mean", "sum")  # as the registry numbers them


def _loss(name: str) -> tuple[Callable[..., Any], tuple[str, ...]]:
    """A loss of `torch.nn.functional` whose reduction is a number."""

    def loss(self: Any, target: Any, *args: Any, reduction: int = 1, **kwargs: Any) -> Any:
        more = dict(zip(_LOSSES[name], args[1:], strict=False)) | kwargs
        reduction = args[0] if args else reduction
        return getattr(tensorgrad.nn.functional, name)(self, target, reduction=REDUCTIONS[reduction], **more)

    return loss, ("default", "out")


# Losses, and what their operators take after the reduction.
_LOSSES = {"huber_loss": ("delta",), "l1_loss": (), "mse_loss": (), "smooth_l1_loss": ("beta",)}


def _nll_loss_forward(self: Any, target: Any, weight: Any, reduction: int, ignore_index: int) -> tuple:
    """The loss, and the sum of the weights of the targets that count."""
    loss = tensorgrad.nn.functional.nll_loss(
        self, target, weight, ignore_index=ignore_index, reduction=REDUCTIONS[reduction]
    )
    counts = target != ignore_index
    total = self.new_zeros(())
    if reduction:
        total = counts.sum().to(self.dtype) if weight is None else weight.detach()[target[counts]].sum()
    return loss, total


def _adaptive_avg_pool(dims: int) -> tuple[Callable[..., Any], tuple[str, ...]]:
    function = f"adaptive_avg_pool{dims}d"
    return lambda self, output_size: getattr(tensorgrad.nn.functional, function)(self, output_size), ("default", "out")


def _max_pool(dims: int) -> tuple[Callable[..., Any], tuple[str, ...]]:
    def pool(
        self: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
    ) -> Any:
        function = getattr(tensorgrad.nn.functional, f"max_pool{dims}d_with_indices")
        return function(self, kernel_size, stride or None, padding, dilation, ceil_mode)

    return pool, ("default", "out")


def _embedding_dense_backward(
    grad_output: Any, indices: Any, num_weights: int, padding_idx: int, scale_grad_by_freq: bool
) -> Any:
    row = OPS["embedding_grad"].compiled.call
    return row(grad_output, indices, num_weights, padding_idx, scale_grad_by_freq)


def _elu(self: Any, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Any:
    """`elu`, of which `selu` is a form."""
    return OPS["elu"].compiled.call(self, alpha, scale, input_scale)


def _slice_backward(grad_output: Any, input_sizes: Any, dim: int, start: int, end: int, step: int) -> Any:
    return tensorgrad.slice_scatter(grad_output.new_zeros(input_sizes), grad_output, dim, start, end, step)


def _threshold_backward(grad_output: Any, self: Any, threshold: float) -> Any:
    return tensorgrad.where(self <= threshold, tensorgrad.zeros_like(grad_output), grad_output)


def _unsafe_view(self: Any, size: Any) -> Any:
    """`self.view(size)` that autograd does not take for a view."""
    return self.reshape(size)


def _nll_loss_nd(self: Any, target: Any, weight: Any = None, reduction: int = 1, ignore_index: int = -100) -> Any:
    return tensorgrad.nn.functional.nll_loss(
        self, target, weight, ignore_index=ignore_index, reduction=REDUCTIONS[reduction]
    )


def _cross_entropy_loss(
    self: Any, target: Any, weight: Any = None, reduction: int = 1, ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Any:  # fmt: skip
    return tensorgrad.nn.functional.cross_entropy(
        self, target, weight, ignore_index=ignore_index, reduction=REDUCTIONS[reduction],
        label_smoothing=label_smoothing,
    )  # fmt: skip


def _binary_cross_entropy(self: Any, target: Any, weight: Any = None, reduction: int = 1) -> Any:
    return tensorgrad.nn.functional.binary_cross_entropy(self, target, weight, reduction=REDUCTIONS[reduction])


def _native_batch_norm_legit_functional(
    input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, training: bool, momentum: float, eps: float
) -> tuple:
    """`native_batch_norm`, which returns new running statistics in place of writing them."""
    mean, var = running_mean.clone(), running_var.clone()
    made = tensorgrad.native_batch_norm(input, weight, bias, mean, var, training, momentum, eps)
    return (*made, mean, var)


def _native_batch_norm_legit_no_training(
    input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, momentum: float, eps: float
) -> tuple:
    """`native_batch_norm` by the running statistics."""
    return tensorgrad.native_batch_norm(input, weight, bias, running_mean, running_var, False, momentum, eps)


def _im2col(self: Any, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Any:
    return tensorgrad.nn.functional.unfold(self, kernel_size, dilation, padding, stride)


def _col2im(self: Any, output_size: Any, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Any:
    return tensorgrad.nn.functional.fold(self, output_size, kernel_size, dilation, padding, stride)


def _adaptive_max_pool(dims: int) -> tuple[Callable[..., Any], tuple[str, ...]]:
    function = f"adaptive_max_pool{dims}d"
    pool = lambda self, output_size: getattr(tensorgrad.nn.functional, function)(self, output_size, True)
    return pool, ("default", "out")


def _upsample(mode: str) -> tuple[Callable[..., Any], tuple[str, ...]]:
    """`torch.nn.functional.interpolate` of one mode: to a size, or by factors."""

    def upsample(input: Any, output_size: Any, *late: Any) -> Any:
        *align, factors = late
        return tensorgrad.nn.functional.interpolate(
            input, output_size, factors, mode=mode, align_corners=align[0] if align else None
        )

    return upsample, ("vec",)


def _in_place(name: str) -> tuple[Callable[..., Any], tuple[str, ...]]:
    """An activation that is not a method: `silu_(x)` for `silu(x, inplace=True)`."""
    return lambda self: getattr(tensorgrad.nn.functional, name)(self, inplace=True), ("default",)


# Operators that users of `torch` write in another way.
_WRITTEN_OTHERWISE: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "_adaptive_avg_pool2d": _adaptive_avg_pool(2),
    "_adaptive_avg_pool3d": _adaptive_avg_pool(3),
    "_native_batch_norm_legit_functional": (_native_batch_norm_legit_functional, ("default",)),
    "_native_batch_norm_legit_no_training": (_native_batch_norm_legit_no_training, ("default", "out")),
    "_log_softmax": (
        lambda self, dim, half_to_float: tensorgrad.nn.functional.log_softmax(
            self, dim, dtype=tensorgrad.float32 if half_to_float else None
        ),
        ("default", "out"),
    ),
    "_softmax": (
        lambda self, dim, half_to_float: tensorgrad.nn.functional.softmax(
            self, dim, dtype=tensorgrad.float32 if half_to_float else None
        ),
        ("default", "out"),
    ),
    "_unsafe_view": (_unsafe_view, ("default", "out")),
    "block_diag": (lambda tensors: tensorgrad.block_diag(*tensors), ("default",)),
    "col2im": (_col2im, ("default", "out")),
    "copy": (lambda self, src, non_blocking=False: self.clone().copy_(src, non_blocking), ("default", "out")),
    "cross_entropy_loss": (_cross_entropy_loss, ("default",)),
    "glu": (lambda self, dim=-1: tensorgrad.nn.functional.glu(self, dim), ("default", "out")),
    "im2col": (_im2col, ("default", "out")),
    "l1_loss": (_loss("l1_loss")[0], ("default",)),
    "lift_fresh_copy": (lambda self: self.clone(), ("default", "out")),
    "log_sigmoid": (lambda self: tensorgrad.nn.functional.logsigmoid(self), ("default", "out")),
    "nll_loss_nd": (_nll_loss_nd, ("default",)),
    "pad": (
        lambda self, pad, mode="constant", value=None: tensorgrad.nn.functional.pad(self, pad, mode, value),
        ("default",),
    ),
    "sym_size": (lambda self, dim: self.shape[dim], ("int", "default")),
    "upsample_bicubic2d": _upsample("bicubic"),
    "upsample_bilinear2d": _upsample("bilinear"),
    "upsample_linear1d": _upsample("linear"),
    "upsample_nearest1d": _upsample("nearest"),
    "upsample_nearest2d": _upsample("nearest"),
    "upsample_nearest3d": _upsample("nearest"),
    "upsample_trilinear3d": _upsample("trilinear"),
    "convolution_backward": (_convolution_backward, ("default", "out")),
    "_local_scalar_dense": (lambda self: self.item(), ("default",)),
    "_pin_memory": (lambda self, device=None: self.pin_memory(), ("default",)),
    "_sparse_addmm": (
        lambda self, mat1, mat2, *, beta=1, alpha=1: tensorgrad.sparse.addmm(self, mat1, mat2, beta=beta, alpha=alpha),
        ("default",),
    ),
    "_to_copy": (_to_copy, ("default",)),
    "adaptive_avg_pool2d": _adaptive_avg_pool(2),
    "adaptive_avg_pool3d": _adaptive_avg_pool(3),
    "adaptive_max_pool2d": _adaptive_max_pool(2),
    "adaptive_max_pool3d": _adaptive_max_pool(3),
    "alias": (lambda self: self.view_as(self), ("default",)),
    "binary_cross_entropy": (_binary_cross_entropy, ("default", "out")),
    "index": (_index, ("Tensor",)),
    "diagonal_backward": (
        lambda grad_output, input_sizes, offset, dim1, dim2: tensorgrad.diagonal_scatter(
            grad_output.new_zeros(input_sizes), grad_output, offset, dim1, dim2
        ),
        ("default", "out"),
    ),
    "elu": (_elu, ("default", "out")),
    "embedding_dense_backward": (_embedding_dense_backward, ("default", "out")),
    "max_pool2d_with_indices": _max_pool(2),
    "max_pool3d_with_indices": _max_pool(3),
    "nll_loss_forward": (_nll_loss_forward, ("default", "output")),
    "nll_loss2d_forward": (_nll_loss_forward, ("default", "output")),
    "select_backward": (
        lambda grad_output, input_sizes, dim, index: tensorgrad.select_scatter(
            grad_output.new_zeros(input_sizes), grad_output, dim, index
        ),
        ("default", "out"),
    ),
    "slice": (_slice, ("Tensor",)),
    "slice_backward": (_slice_backward, ("default", "out")),
    "threshold_backward": (_threshold_backward, ("default", "grad_input")),
    **{f"{name}_": _in_place(name) for name in ("hardsigmoid", "hardswish", "mish", "silu")},
    **{name: _loss(name) for name in _LOSSES if name != "l1_loss"},
}
_NAMESPACES = ("special", "linalg", "fft")  # `aten.linalg_det` is `torch.linalg.det`


def _absent() -> dict[str, str]:
    from tensorgrad.system.absent_names import OPERATORS  # rarely needed

    return OPERATORS


def _refuse(name: str, *args: Any, **kwargs: Any) -> Any:
    raise NotImplementedError(f"{name}: tensorgrad does not have this operator of PyTorch's")


@functools.cache
def _overloads() -> dict[str, tuple[str, ...]]:
    told = {name.rstrip("*"): tuple(kinds.split()) for kinds, names in _OVERLOADS.items() for name in names.split()}
    return told | {name: overloads for name, (_, overloads) in _WRITTEN_OTHERWISE.items()}


def _function(name: str) -> Callable[..., Any]:
    """Returns the function that implements an operator. Raises: AttributeError if there is none."""
    if name in _WRITTEN_OTHERWISE:
        return _WRITTEN_OTHERWISE[name][0]
    namespace, _, inside = name.partition("_")
    if namespace in _NAMESPACES and hasattr(getattr(tensorgrad, namespace), inside):
        return getattr(getattr(tensorgrad, namespace), inside)
    for owner in (tensorgrad, tensorgrad.Tensor, tensorgrad.nn.functional):
        if callable(getattr(owner, name, None)):  # `torch.size` is a module
            return getattr(owner, name)
    raise AttributeError(name)


class OpOverload:
    """One overload of an operator: `torch.ops.aten.add.Tensor`.

    >>> torch.ops.aten.add.Tensor(torch.ones(2), 3), torch.ops.aten.add.Tensor
    (tensor([4., 4.]), <OpOverload(op='aten.add', overload='Tensor')>)
    """

    def __init__(self, packet: OpOverloadPacket, overload: str):
        self.overloadpacket, self._overloadname = packet, overload
        self.__name__ = self.__qualname__ = f"{packet.__name__}.{overload}"
        self.namespace = packet._namespace

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Runs the operator."""
        if DISPATCH:
            result = DISPATCH[0](self, args, kwargs)
            if result is not NotImplemented:
                return result
        return self.overloadpacket(*args, **kwargs)

    @property
    def op(self) -> Callable[..., Any]:
        """The function that implements the operator."""
        return self.overloadpacket.op

    def name(self) -> str:
        """The full name, `aten::add.Tensor`."""
        packet = self.overloadpacket._qualified_op_name
        return packet if self._overloadname == "default" else f"{packet}.{self._overloadname}"

    def __str__(self) -> str:
        return f"{self.overloadpacket}.{self._overloadname}"

    def __repr__(self) -> str:
        return f"<OpOverload(op='{self.overloadpacket}', overload='{self._overloadname}')>"

    def __reduce__(self) -> tuple:
        return getattr, (self.overloadpacket, self._overloadname)


class OpOverloadPacket:
    """An operator with all its overloads: `torch.ops.aten.add`.

    >>> torch.ops.aten.add(torch.ones(2), torch.ones(2), alpha=2)
    tensor([3., 3.])
    >>> torch.ops.aten.relu.overloads()
    ['default', 'out']
    """

    def __init__(self, name: str, op: Callable[..., Any] | None = None, namespace: str = "aten"):
        self.__name__, self.op, self._namespace = name, op or _function(name), namespace
        self._qualified_op_name = f"{namespace}::{name}"

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Runs the operator. The first argument may be passed as `self`, its name in the registry."""
        if "self" in kwargs and not args:
            args = (kwargs.pop("self"),)
        if DISPATCH:
            result = DISPATCH[0](self, args, kwargs)
            if result is not NotImplemented:
                return result
        return self.op(*args, **kwargs)

    def overloads(self) -> list[str]:
        """The names of the overloads."""
        if self._qualified_op_name in _absent():
            return _absent()[self._qualified_op_name].split()
        return list(_overloads()[self.__name__]) if self._namespace == "aten" else ["default"]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name not in self.overloads():
            raise AttributeError(f"The underlying op of '{self}' has no overload name '{name}'")
        made = self.__dict__[name] = OpOverload(self, name)
        return made

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.overloads()]

    def __iter__(self) -> Iterator[str]:
        return iter(self.overloads())

    def __str__(self) -> str:
        return f"{self._namespace}.{self.__name__}"

    def __repr__(self) -> str:
        return f"<OpOverloadPacket(op='{self}')>"

    def __reduce__(self) -> tuple:
        return _packet_of, (self._namespace, self.__name__)


@functools.cache
def _packet(name: str) -> OpOverloadPacket:
    return OpOverloadPacket(name)


def _packet_of(namespace: str, name: str) -> OpOverloadPacket:
    return getattr(getattr(ops, namespace), name)


class _OpNamespace(ModuleType):
    """The operators of one library: `torch.ops.aten`. All others are empty until a library is loaded."""

    def __init__(self, name: str):
        super().__init__(f"torch.ops.{name}", f"The operators of {name}.")
        self.__dict__["name"] = name

    def __getattr__(self, name: str) -> Any:
        namespace = self.__dict__["name"]
        if namespace == "higher_order":
            self.__dict__.update(importlib.import_module("tensorgrad.control_flow").OPERATORS)
            if name in self.__dict__:
                return self.__dict__[name]
        full = f"{namespace}::{name}"
        if full in _absent():
            made = self.__dict__[name] = OpOverloadPacket(name, functools.partial(_refuse, full), namespace)
            return made
        if namespace != "aten" or name not in _overloads():
            raise AttributeError(f"'_OpNamespace' '{namespace}' object has no attribute '{name}'")
        made = self.__dict__[name] = _packet(name)
        return made

    def __dir__(self) -> list[str]:
        return sorted({*self.__dict__, *(_overloads() if self.__dict__["name"] == "aten" else ())})

    def __repr__(self) -> str:
        return f"<module '{self.__name__}' from 'torch.ops'>"


class _Ops(ModuleType):
    """`torch.ops`: one namespace per operator library, created on first access."""

    def __init__(self) -> None:
        super().__init__("torch.ops", "Operators by the names of PyTorch's registry.")
        self.__dict__["loaded_libraries"] = set()

    def __getattr__(self, name: str) -> _OpNamespace:
        if name.startswith("__"):
            raise AttributeError(f"module 'torch.ops' has no attribute {name!r}")
        made = self.__dict__[name] = _OpNamespace(name)
        return made

    def load_library(self, path: Any) -> None:
        """Adds the operators of a compiled library that have an implementation here (compat/compiled_libraries.py).

        Raises: OSError for all others. They need PyTorch's C++ core, which does not exist here.
        """
        from tensorgrad.compat.compiled_libraries import operators

        found = operators(path)
        if found is None:
            raise OSError(f"Could not load this library: {path} (it needs PyTorch's C++ core, which tensorgrad lacks)")
        namespace, functions = found
        for name, function in functions.items():
            getattr(self, namespace).__dict__[name] = OpOverloadPacket(name, function, namespace)
        self.loaded_libraries.add(os.path.realpath(path))

    def import_module(self, module: str) -> None:
        """Imports a Python module, which may declare operators."""
        importlib.import_module(module)

    def __repr__(self) -> str:
        return "<module 'torch.ops' from '_ops.py'>"


ops = _Ops()


def __getattr__(name: str) -> Any:
    if name == "HigherOrderOperator":  # rarely needed
        from tensorgrad.library.higher_order import HigherOrderOperator

        return HigherOrderOperator
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)


def __dir__() -> list[str]:
    return sorted({*globals(), "HigherOrderOperator"})


whole(__name__)
