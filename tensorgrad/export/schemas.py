"""The names of the arguments of PyTorch's operators, and the numbers of dtypes and layouts, as files have them."""

from __future__ import annotations

import functools

import tensorgrad

# Arguments -> the operators with exactly these; that of the overload "default" without it.
_ARGUMENTS: dict[str, str] = {
    "self": """
        _local_scalar_dense abs abs_ absolute absolute_ acos acos_ acosh acosh_ adjoint alias alias_copy all
        angle any arccos arccos_ arccosh arccosh_ arcsin arcsin_ arcsinh arcsinh_ arctan arctan_ arctanh
        arctanh_ argwhere asin asin_ asinh asinh_ atan atan_ atanh atanh_ atleast_1d atleast_2d atleast_3d
        bitwise_not bitwise_not_ ceil ceil_ conj conj_physical conj_physical_ corrcoef cos cos_ cosh cosh_
        deg2rad deg2rad_ det detach detach_ detach_copy digamma digamma_ dim erf erf_ erfc erfc_ erfinv
        erfinv_ exp exp2 exp2_ exp_ expm1 expm1_ fix fix_ fliplr flipud floor floor_ frac frac_ frexp.Tensor
        geqrf get_device hardsigmoid hardsigmoid_ hardswish hardswish_ i0 i0_ imag inverse is_complex is_conj
        is_contiguous
        is_distributed is_floating_point is_inference is_neg is_nonzero is_signed isfinite isinf isnan
        isneginf isposinf isreal item lgamma lgamma_ lift_fresh_copy linalg_eig linalg_eigvals
        linalg_matrix_exp log log10 log10_ log1p log1p_ log2 log2_ log_ log_sigmoid logdet logical_not
        logical_not_ matrix_exp max median min mish mish_ msort nanmedian neg neg_ negative negative_ nonzero numel
        positive rad2deg rad2deg_ ravel real reciprocal reciprocal_ relu relu_ resolve_conj resolve_neg
        retain_grad round round_ rsqrt rsqrt_ selu selu_ set_ sgn sgn_ sigmoid sigmoid_ sign sign_ signbit
        silu silu_ sin sin_ sinc sinc_ sinh sinh_ slogdet special_bessel_j0 special_bessel_j1 special_bessel_y0
        special_bessel_y1 special_digamma special_entr special_erf special_erfc special_erfcx special_erfinv
        special_exp2 special_expit special_expm1 special_gammaln special_i0 special_i0e special_i1 special_i1e
        special_log1p special_log_ndtr special_modified_bessel_i0 special_modified_bessel_i1
        special_modified_bessel_k0 special_modified_bessel_k1 special_ndtr special_ndtri special_psi
        special_sinc sqrt sqrt_ square square_ squeeze squeeze_ squeeze_copy storage_offset t t_ t_copy tan
        tan_ tanh tanh_ trace trunc trunc_ view_as_complex view_as_complex_copy view_as_real view_as_real_copy
        zero_
    """,
    "self other": """
        arctan2 arctan2_ atan2 atan2_ bitwise_and.Scalar bitwise_and.Scalar_Tensor bitwise_and.Tensor
        bitwise_and_.Scalar bitwise_and_.Tensor bitwise_left_shift.Scalar_Tensor bitwise_left_shift.Tensor
        bitwise_left_shift.Tensor_Scalar bitwise_left_shift_.Tensor bitwise_left_shift_.Tensor_Scalar
        bitwise_or.Scalar bitwise_or.Scalar_Tensor bitwise_or.Tensor bitwise_or_.Scalar bitwise_or_.Tensor
        bitwise_right_shift.Scalar_Tensor bitwise_right_shift.Tensor bitwise_right_shift.Tensor_Scalar
        bitwise_right_shift_.Tensor bitwise_right_shift_.Tensor_Scalar bitwise_xor.Scalar
        bitwise_xor.Scalar_Tensor bitwise_xor.Tensor bitwise_xor_.Scalar bitwise_xor_.Tensor copysign.Scalar
        copysign.Tensor copysign_.Scalar copysign_.Tensor div.Scalar div.Tensor div_.Scalar div_.Tensor
        divide.Scalar divide.Tensor divide_.Scalar divide_.Tensor eq.Scalar eq.Tensor eq_.Scalar eq_.Tensor
        equal expand_as floor_divide floor_divide.Scalar floor_divide_.Scalar floor_divide_.Tensor fmax fmin
        fmod.Scalar fmod.Tensor fmod_.Scalar fmod_.Tensor gcd gcd_ ge.Scalar ge.Tensor ge_.Scalar ge_.Tensor
        greater.Scalar greater.Tensor greater_.Scalar greater_.Tensor greater_equal.Scalar
        greater_equal.Tensor greater_equal_.Scalar greater_equal_.Tensor gt.Scalar gt.Tensor gt_.Scalar
        gt_.Tensor hypot hypot_ igamma igamma_ igammac igammac_ inner is_same_size kron lcm lcm_ ldexp.Tensor
        ldexp_ le.Scalar le.Tensor le_.Scalar le_.Tensor less.Scalar less.Tensor less_.Scalar less_.Tensor
        less_equal.Scalar less_equal.Tensor less_equal_.Scalar less_equal_.Tensor linalg_matmul logaddexp
        logaddexp2 logical_and logical_and_ logical_or logical_or_ logical_xor logical_xor_ lt.Scalar
        lt.Tensor lt_.Scalar lt_.Tensor matmul max.other maximum min.other minimum mul.Scalar mul.Tensor
        mul_.Scalar mul_.Tensor multiply.Scalar multiply.Tensor multiply_.Scalar multiply_.Tensor ne.Scalar
        ne.Tensor ne_.Scalar ne_.Tensor nextafter nextafter_ not_equal.Scalar not_equal.Tensor
        not_equal_.Scalar not_equal_.Tensor remainder.Scalar remainder.Scalar_Tensor remainder.Tensor
        remainder_.Scalar remainder_.Tensor reshape_as special_gammainc special_gammaincc special_xlog1py
        special_xlog1py.other_scalar special_xlog1py.self_scalar special_xlogy special_xlogy.other_scalar
        special_xlogy.self_scalar special_zeta special_zeta.other_scalar special_zeta.self_scalar
        true_divide.Scalar true_divide.Tensor true_divide_.Scalar true_divide_.Tensor type_as vdot view_as
        xlogy.Scalar_Other xlogy.Scalar_Self xlogy.Tensor xlogy_.Scalar_Other xlogy_.Tensor
    """,
    "x n": """
        special_chebyshev_polynomial_t special_chebyshev_polynomial_t.n_scalar
        special_chebyshev_polynomial_t.x_scalar special_chebyshev_polynomial_u
        special_chebyshev_polynomial_u.n_scalar special_chebyshev_polynomial_u.x_scalar
        special_chebyshev_polynomial_v special_chebyshev_polynomial_v.n_scalar
        special_chebyshev_polynomial_v.x_scalar special_chebyshev_polynomial_w
        special_chebyshev_polynomial_w.n_scalar special_chebyshev_polynomial_w.x_scalar
        special_hermite_polynomial_h special_hermite_polynomial_h.n_scalar
        special_hermite_polynomial_h.x_scalar special_hermite_polynomial_he
        special_hermite_polynomial_he.n_scalar special_hermite_polynomial_he.x_scalar
        special_laguerre_polynomial_l special_laguerre_polynomial_l.n_scalar
        special_laguerre_polynomial_l.x_scalar special_legendre_polynomial_p
        special_legendre_polynomial_p.n_scalar special_legendre_polynomial_p.x_scalar
        special_shifted_chebyshev_polynomial_t special_shifted_chebyshev_polynomial_t.n_scalar
        special_shifted_chebyshev_polynomial_t.x_scalar special_shifted_chebyshev_polynomial_u
        special_shifted_chebyshev_polynomial_u.n_scalar special_shifted_chebyshev_polynomial_u.x_scalar
        special_shifted_chebyshev_polynomial_v special_shifted_chebyshev_polynomial_v.n_scalar
        special_shifted_chebyshev_polynomial_v.x_scalar special_shifted_chebyshev_polynomial_w
        special_shifted_chebyshev_polynomial_w.n_scalar special_shifted_chebyshev_polynomial_w.x_scalar
    """,
    "self dim": """
        count_nonzero count_nonzero.dim_IntList cummax cummin fft_fftshift fft_ifftshift glu logcumsumexp
        size.int squeeze.dim squeeze.dims squeeze_.dim squeeze_.dims squeeze_copy.dim squeeze_copy.dims
        stride.int sym_size.int unbind.int unbind_copy.int unsqueeze unsqueeze_ unsqueeze_copy
    """,
    "self dim keepdim": """
        all.dim all.dims amax amin aminmax any.dim any.dims argmax argmin frobenius_norm.dim logsumexp max.dim
        median.dim min.dim mode nanmedian.dim nuclear_norm.dim special_logsumexp
    """,
    "self other alpha": """
        add.Scalar add.Tensor add_.Scalar add_.Tensor rsub.Scalar rsub.Tensor sub.Scalar sub.Tensor
        sub_.Scalar sub_.Tensor subtract.Scalar subtract.Tensor subtract_.Scalar subtract_.Tensor
    """,
    "tensors": """
        atleast_1d.Sequence atleast_2d.Sequence atleast_3d.Sequence block_diag broadcast_tensors
        cartesian_prod column_stack dstack hstack linalg_multi_dot meshgrid row_stack vstack
    """,
    "self s dim norm": """
        fft_fft2 fft_fftn fft_hfft2 fft_hfftn fft_ifft2 fft_ifftn fft_ihfft2 fft_ihfftn fft_irfft2 fft_irfftn
        fft_rfft2 fft_rfftn
    """,
    "self exponent": """
        float_power.Scalar float_power.Tensor_Scalar float_power.Tensor_Tensor float_power_.Scalar
        float_power_.Tensor pow.Scalar pow.Tensor_Scalar pow.Tensor_Tensor pow_.Scalar pow_.Tensor
    """,
    "self dim dtype": """
        cumprod cumprod_ cumsum cumsum_ log_softmax.int softmax.int special_log_softmax special_softmax
    """,
    "self min max": "clamp clamp.Tensor clamp_ clamp_.Tensor clip clip.Tensor clip_ clip_.Tensor",
    "self other rounding_mode": """
        div.Scalar_mode div.Tensor_mode div_.Scalar_mode div_.Tensor_mode divide.Scalar_mode
        divide.Tensor_mode divide_.Scalar_mode divide_.Tensor_mode
    """,
    "self p": "linalg_cond linalg_cond.p_str mvlgamma mvlgamma_ norm.Scalar pdist special_multigammaln",
    "input weight bias stride padding dilation groups": """
        conv1d conv1d.padding conv2d conv2d.padding conv3d conv3d.padding
    """,
    "self dim index value": """
        index_fill.int_Scalar index_fill.int_Tensor index_fill_.int_Scalar index_fill_.int_Tensor
        scatter.value scatter_.value
    """,
    "self kernel_size stride padding dilation ceil_mode": """
        max_pool1d max_pool1d_with_indices max_pool2d max_pool2d_with_indices max_pool3d
        max_pool3d_with_indices
    """,
    "self n dim norm": "fft_fft fft_hfft fft_ifft fft_ihfft fft_irfft fft_rfft",
    "self output_size": """
        _adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d
        adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d
    """,
    "self spacing dim edge_order": """
        gradient.scalararray gradient.scalarint gradient.scalarrayarray gradient.scalarrayint
        gradient.tensorarray gradient.tensorarrayint
    """,
    "input p train": "alpha_dropout dropout feature_alpha_dropout feature_dropout native_dropout",
    "self diagonal": "diag tril tril_ triu triu_",
    "self dim keepdim dtype": "mean.dim nanmean nansum prod.dim_int sum.dim_IntList",
    "self dim0 dim1": "swapdims swapdims_ transpose.int transpose_ transpose_copy.int",
    "self dtype": "mean prod sum view.dtype view_copy.dtype",
    "self dtype layout device pin_memory memory_format": "empty_like ones_like rand_like randn_like zeros_like",
    "self ord dim keepdim dtype": """
        linalg_matrix_norm linalg_matrix_norm.str_ord linalg_norm linalg_norm.ord_str linalg_vector_norm
    """,
    "self size": "_unsafe_view broadcast_to sum_to_size view view_copy",
    "window_length dtype layout device pin_memory": """
        bartlett_window blackman_window hamming_window hann_window kaiser_window
    """,
    "window_length periodic dtype layout device pin_memory": """
        bartlett_window.periodic blackman_window.periodic hamming_window.periodic hann_window.periodic
        kaiser_window.periodic
    """,
    "condition self other": "where.Scalar where.ScalarOther where.ScalarSelf where.self",
    "data batch_sizes hx params has_biases num_layers dropout train bidirectional": """
        gru.data lstm.data rnn_relu.data rnn_tanh.data
    """,
    "input hx params has_biases num_layers dropout train bidirectional batch_first": """
        gru.input lstm.input rnn_relu.input rnn_tanh.input
    """,
    "input hx w_ih w_hh b_ih b_hh": "gru_cell lstm_cell rnn_relu_cell rnn_tanh_cell",
    "input output_size align_corners scale_factors": """
        upsample_bicubic2d.vec upsample_bilinear2d.vec upsample_linear1d.vec upsample_trilinear3d.vec
    """,
    "self batch1 batch2 beta alpha": "addbmm addbmm_ baddbmm baddbmm_",
    "self bins range weight density": "histogram.bin_ct histogramdd histogramdd.TensorList_bins histogramdd.int_bins",
    "self dim correction keepdim": "std.correction std_mean.correction var.correction var_mean.correction",
    "self dim index src": "scatter.src scatter_.src scatter_add scatter_add_",
    "self dim unbiased keepdim": "std.dim std_mean.dim var.dim var_mean.dim",
    "self dims": "flip permute permute_copy tile",
    "self end weight": "lerp.Scalar lerp.Tensor lerp_.Scalar lerp_.Tensor",
    "self indices": "dsplit.array hsplit.array index.Tensor vsplit.array",
    "self mask value": "masked_fill.Scalar masked_fill.Tensor masked_fill_.Scalar masked_fill_.Tensor",
    "self max": "clamp_max clamp_max.Tensor clamp_max_ clamp_max_.Tensor",
    "self min": "clamp_min clamp_min.Tensor clamp_min_ clamp_min_.Tensor",
    "self p generator": "bernoulli.p bernoulli_.Tensor bernoulli_.float geometric_",
    "self p train": "alpha_dropout_ dropout_ feature_alpha_dropout_ feature_dropout_",
    "self q dim keepdim interpolation": "nanquantile nanquantile.scalar quantile quantile.scalar",
    "self source destination": "moveaxis.int moveaxis.intlist movedim.int movedim.intlist",
    "self split_size dim": "split.Tensor split.sizes split_copy.Tensor unsafe_split.Tensor",
    "self tensor1 tensor2 value": "addcdiv addcdiv_ addcmul addcmul_",
    "self unbiased": "std std_mean var var_mean",
    "self value": "fill.Scalar fill.Tensor fill_.Scalar fill_.Tensor",
    "size dtype layout device pin_memory": "ones rand randn zeros",
    "start end steps base dtype layout device pin_memory": """
        logspace logspace.Scalar_Tensor logspace.Tensor_Scalar logspace.Tensor_Tensor
    """,
    "start end steps dtype layout device pin_memory": """
        linspace linspace.Scalar_Tensor linspace.Tensor_Scalar linspace.Tensor_Tensor
    """,
    "tensors dim": "cat concat concatenate stack",
    "x": """
        special_airy_ai special_scaled_modified_bessel_k0 special_scaled_modified_bessel_k1
        special_spherical_bessel_j0
    """,
    "A": "linalg_det linalg_inv linalg_slogdet",
    "input grid interpolation_mode padding_mode align_corners": "grid_sampler grid_sampler_2d grid_sampler_3d",
    "input output_size scale_factors": "upsample_nearest1d.vec upsample_nearest2d.vec upsample_nearest3d.vec",
    "input weight bias stride padding output_padding groups dilation": """
        conv_transpose1d conv_transpose2d.input conv_transpose3d.input
    """,
    "mean std generator": "normal.Tensor_Tensor normal.Tensor_float normal.float_Tensor",
    "self atol rtol hermitian": """
        linalg_matrix_rank.atol_rtol_float linalg_pinv.atol_rtol_float linalg_pinv.atol_rtol_tensor
    """,
    "self decimals": "round.decimals round_.decimals special_round",
    "self device": "_pin_memory is_pinned pin_memory",
    "self dim index": "index_select select.int select_copy.int",
    "self dim start length": "narrow narrow.Tensor narrow_copy",
    "self eps": "logit logit_ special_logit",
    "self generator": "bernoulli poisson random_",
    "self mat1 mat2 beta alpha": "_sparse_addmm addmm addmm_",
    "self mat2": "_int_mm bmm mm",
    "self memory_format": "clone contiguous is_contiguous.memory_format",
    "self n": "linalg_matrix_power matrix_power polygamma_",
    "self offset dim1 dim2": "diag_embed diagonal diagonal_copy",
    "self other out": "xlogy.OutScalar_Other xlogy.OutScalar_Self xlogy.OutTensor",
    "self sections": "dsplit.int hsplit.int vsplit.int",
    "self size dtype layout device pin_memory": "new_empty new_ones new_zeros",
    "self size stride storage_offset": "as_strided as_strided_ as_strided_copy",
    "self split_sizes dim": "split_with_sizes split_with_sizes_copy unsafe_split_with_sizes",
    "self target weight reduction ignore_index": "nll_loss2d_forward nll_loss_forward nll_loss_nd",
    "self upper": "cholesky cholesky_inverse linalg_cholesky",
    "y dx dim": "cumulative_trapezoid.dx trapezoid.dx trapz.dx",
    "y x dim": "cumulative_trapezoid.x trapezoid.x trapz.x",
    "A pivot": "linalg_lu linalg_lu_factor",
    "input1 input2 target margin reduction": "cosine_embedding_loss margin_ranking_loss",
    "log_probs targets input_lengths target_lengths blank reduction zero_infinity": """
        ctc_loss.IntList ctc_loss.Tensor
    """,
    "n d dtype layout device pin_memory": "fft_fftfreq fft_rfftfreq",
    "n dtype layout device pin_memory": "eye randperm",
    "n self": "polygamma special_polygamma",
    "row col offset dtype layout device pin_memory": "tril_indices triu_indices",
    "self UPLO": "linalg_eigh linalg_eigvalsh",
    "self alpha": "celu celu_",
    "self alpha scale input_scale": "elu elu_",
    "self axis0 axis1": "swapaxes swapaxes_",
    "self boundaries out_int32 right": "bucketize.Scalar bucketize.Tensor",
    "self chunks dim": "chunk unsafe_chunk",
    "self dim descending": "argsort sort",
    "self dim half_to_float": "_log_softmax _softmax",
    "self dim index source": "index_copy index_copy_",
    "self dim index source alpha": "index_add index_add_",
    "self dim index source reduce include_self": "index_reduce index_reduce_",
    "self dim index src reduce": "scatter.reduce scatter_.reduce",
    "self dim index src reduce include_self": "scatter_reduce.two scatter_reduce_.two",
    "self dim index value reduce": "scatter.value_reduce scatter_.value_reduce",
    "self dim keepdim values indices": "median.dim_values nanmedian.dim_values",
    "self dim start end step": "slice.Tensor slice_copy.Tensor",
    "self dimension size step": "unfold unfold_copy",
    "self kernel_size dilation padding stride": "im2col",
    "self output_size kernel_size dilation padding stride": "col2im",
    "self from to generator": "random_.from uniform_",
    "self generator dtype layout device pin_memory memory_format": "rand_like.generator randn_like.generator",
    "self groups": "channel_shuffle native_channel_shuffle",
    "self high dtype layout device pin_memory memory_format": "randint_like randint_like.Tensor",
    "self high generator dtype layout device pin_memory memory_format": """
        randint_like.Tensor_generator randint_like.generator
    """,
    "self index source accumulate": "put put_",
    "self indices dim": "take_along_dim tensor_split.indices",
    "self indices values accumulate": "index_put index_put_",
    "self kernel_size stride padding ceil_mode count_include_pad divisor_override": "avg_pool2d avg_pool3d",
    "self lambd": "hardshrink softshrink",
    "self lower upper training generator": "rrelu rrelu_",
    "self mask source": "masked_scatter masked_scatter_",
    "self mat vec beta alpha": "addmv addmv_",
    "self mat2 out_dtype": "bmm.dtype mm.dtype",
    "self mean std generator": "log_normal_ normal_",
    "self min_val max_val": "hardtanh hardtanh_",
    "self nan posinf neginf": "nan_to_num nan_to_num_",
    "self negative_slope": "leaky_relu leaky_relu_",
    "self other dim": "cross linalg_cross",
    "self other rtol atol equal_nan": "allclose isclose",
    "self p dim maxnorm": "renorm renorm_",
    "self rcond hermitian": "linalg_pinv linalg_pinv.rcond_tensor",
    "self repeats dim output_size": "repeat_interleave.self_Tensor repeat_interleave.self_int",
    "self size implicit": "expand expand_copy",
    "self source": "set_.source_Storage set_.source_Tensor",
    "self source storage_offset size stride": "set_.source_Storage_storage_offset set_.source_Tensor_storage_offset",
    "self src dim start end step": "slice_inverse slice_scatter",
    "self src non_blocking": "copy copy_",
    "self stable dim descending": "argsort.stable sort.stable",
    "self target reduction": "l1_loss mse_loss",
    "self tensor": "dot is_set_to",
    "self threshold value": "threshold threshold_",
    "self values": "heaviside heaviside_",
    "self vec1 vec2 beta alpha": "addr addr_",
    "self vec2": "ger outer",
    "size generator dtype layout device pin_memory": "rand.generator randn.generator",
    "sorted_sequence self out_int32 right side sorter": "searchsorted.Scalar searchsorted.Tensor",
    "start end dtype layout device pin_memory": "arange.start range",
    "start end step dtype layout device pin_memory": "arange.start_step range.step",
    "tensor other": "result_type.Scalar result_type.Tensor",
    "A B left": "linalg_solve",
    "A B left check_errors": "linalg_solve_ex",
    "A check_errors": "linalg_inv_ex",
    "A check_errors inverse info": "linalg_inv_ex.inverse",
    "A driver": "linalg_svdvals",
    "A full_matrices driver": "linalg_svd",
    "A full_matrices driver U S Vh": "linalg_svd.U",
    "A mode": "linalg_qr",
    "A offset dim1 dim2": "linalg_diagonal",
    "A pivot check_errors": "linalg_lu_factor_ex",
    "LD pivots B hermitian": "linalg_ldl_solve",
    "LU pivots B left adjoint": "linalg_lu_solve",
    "LU_data LU_pivots unpack_data unpack_pivots": "lu_unpack",
    "abs angle": "polar",
    "anchor positive negative margin p eps swap reduction": "triplet_margin_loss",
    "condition": "where",
    "count prob generator": "binomial",
    "data reduce lengths indices offsets axis unsafe initial": "segment_reduce",
    "element test_elements assume_unique invert": "isin.Scalar_Tensor",
    "elements test_element assume_unique invert": "isin.Tensor_Scalar",
    "elements test_elements assume_unique invert": "isin.Tensor_Tensor",
    "end dtype layout device pin_memory": "arange",
    "equation tensors path": "einsum",
    "filename shared size dtype layout device pin_memory": "from_file",
    "grad_output indices num_weights padding_idx scale_grad_by_freq": "embedding_dense_backward",
    "grad_output input weight bias_sizes stride padding dilation transposed output_padding groups output_mask": """
        convolution_backward
    """,
    "grad_output input_sizes dim index": "select_backward",
    "grad_output input_sizes dim start end step": "slice_backward",
    "grad_output input_sizes offset dim1 dim2": "diagonal_backward",
    "grad_output self threshold": "threshold_backward",
    "high size dtype layout device pin_memory": "randint",
    "high size generator dtype layout device pin_memory": "randint.generator",
    "input atol rtol hermitian": "linalg_matrix_rank.atol_rtol_tensor",
    "input normalized_shape weight bias eps": "native_layer_norm",
    "input normalized_shape weight bias eps cudnn_enable": "layer_norm",
    "input normalized_shape weight eps": "rms_norm",
    "input num_groups weight bias eps cudnn_enabled": "group_norm",
    "input target log_input full eps reduction": "poisson_nll_loss",
    "input tau": "linalg_householder_product",
    "input tol hermitian": "linalg_matrix_rank.tol_tensor",
    "input weight bias": "linear",
    "input weight bias N C HxW group eps": "native_group_norm",
    "input weight bias running_mean running_var momentum eps": "_native_batch_norm_legit_no_training",
    "input weight bias running_mean running_var training momentum eps cudnn_enabled": "batch_norm",
    "input weight bias running_mean running_var use_input_stats momentum eps cudnn_enabled": "instance_norm",
    "input weight bias stride padding dilation transposed output_padding groups": "convolution",
    "input1 input2 weight bias": "bilinear",
    "low high size dtype layout device pin_memory": "randint.low",
    "low high size generator dtype layout device pin_memory": "randint.low_generator",
    "matrices": "chain_matmul",
    "mean std size generator dtype layout device pin_memory": "normal.float_float",
    "n generator dtype layout device pin_memory": "randperm.generator",
    "n m dtype layout device pin_memory": "eye.m",
    "query key value attn_mask dropout_p is_causal scale enable_gqa": "scaled_dot_product_attention",
    "real imag": "complex",
    "repeats output_size": "repeat_interleave.Tensor",
    "s dtype layout device pin_memory": "scalar_tensor",
    "scalar tensor": "result_type.Scalar_Tensor",
    "self A upper transpose unitriangular": "triangular_solve",
    "self A upper transpose unitriangular X M": "triangular_solve.X",
    "self B upper left unitriangular": "linalg_solve_triangular",
    "self LU_data LU_pivots": "lu_solve",
    "self UPLO eigvals eigvecs": "linalg_eigh.eigvals",
    "self a tau": "geqrf.a",
    "self approximate": "gelu",
    "self b rcond driver": "linalg_lstsq",
    "self batch1 batch2 out_dtype beta alpha": "baddbmm.dtype",
    "self beta threshold": "softplus",
    "self bins min max": "histc",
    "self bins weight density": "histogram.bins_tensor",
    "self correction fweights aweights": "cov",
    "self device dtype non_blocking copy memory_format": "to.device",
    "self dim edge_order": "gradient.array",
    "self dim index sparse_grad": "gather",
    "self dim keepdim max max_values": "max.dim_max",
    "self dim keepdim min min_indices": "min.dim_min",
    "self dim keepdim mode": "hash_tensor",
    "self dim sizes": "unflatten.int",
    "self downscale_factor": "pixel_unshuffle",
    "self dtype layout device pin_memory non_blocking copy memory_format": "to.dtype_layout",
    "self dtype layout device pin_memory non_blocking memory_format": "_to_copy",
    "self dtype non_blocking copy memory_format": "to.dtype",
    "self fill_value dtype layout device pin_memory memory_format": "full_like",
    "self fill_value wrap": "fill_diagonal_",
    "self hermitian": "linalg_ldl_factor",
    "self hermitian check_errors": "linalg_ldl_factor_ex",
    "self ind": "linalg_tensorinv",
    "self index": "take",
    "self indices max_norm norm_type": "embedding_renorm_",
    "self input2": "orgqr",
    "self input2 input3 left transpose": "ormqr",
    "self input2 upper": "cholesky_solve",
    "self k dim keepdim": "kthvalue",
    "self k dim largest sorted": "topk",
    "self k dims": "rot90",
    "self keepdim": "nuclear_norm",
    "self kernel_size stride padding ceil_mode count_include_pad": "avg_pool1d",
    "self lambd generator": "exponential_",
    "self low high dtype layout device pin_memory memory_format": "randint_like.low_dtype",
    "self low high generator dtype layout device pin_memory memory_format": "randint_like.low_generator_dtype",
    "self mask": "masked_select",
    "self mat1 mat2 out_dtype beta alpha": "addmm.dtype",
    "self median sigma generator": "cauchy_",
    "self n dim prepend append": "diff",
    "self num_classes": "one_hot",
    "self num_samples replacement generator": "multinomial",
    "self offset": "diagflat",
    "self other dims": "linalg_tensorsolve",
    "self other dims_self dims_other": "tensordot",
    "self other non_blocking copy memory_format": "to.other",
    "self other p": "dist",
    "self p dim keepdim": "norm.ScalarOpt_dim",
    "self p dim keepdim dtype": "norm.ScalarOpt_dim_dtype",
    "self p dtype": "norm.ScalarOpt_dtype",
    "self pad mode value": "pad",
    "self pad value": "constant_pad_nd",
    "self r with_replacement": "combinations",
    "self rcond": "pinverse",
    "self repeats": "repeat",
    "self requires_grad": "requires_grad_",
    "self s": "record_stream",
    "self sections dim": "tensor_split.sections",
    "self shape": "reshape",
    "self shifts dims": "roll",
    "self size fill_value": "nonzero_static",
    "self size fill_value dtype layout device pin_memory": "new_full",
    "self size memory_format": "resize_",
    "self size stride dtype layout device pin_memory": "new_empty_strided",
    "self some": "qr",
    "self some Q R": "qr.Q",
    "self some compute_uv": "svd",
    "self some compute_uv U S V": "svd.U",
    "self src dim index": "select_scatter",
    "self src offset dim1 dim2": "diagonal_scatter",
    "self src size stride storage_offset": "as_strided_scatter",
    "self start_dim end_dim": "flatten.using_ints",
    "self target margin reduction": "hinge_embedding_loss",
    "self target reduction beta": "smooth_l1_loss",
    "self target reduction delta": "huber_loss",
    "self target reduction log_target": "kl_div",
    "self target weight pos_weight reduction": "binary_cross_entropy_with_logits",
    "self target weight reduction": "binary_cross_entropy",
    "self target weight reduction ignore_index label_smoothing": "cross_entropy_loss",
    "self tensor_indices_or_sections dim": "tensor_split.tensor_indices_or_sections",
    "self the_template memory_format": "resize_as_",
    "self to generator": "random_.to",
    "self tol hermitian": "linalg_matrix_rank",
    "self upper check_errors": "linalg_cholesky_ex",
    "self upper check_errors L info": "linalg_cholesky_ex.L",
    "self upscale_factor": "pixel_shuffle",
    "self vec": "mv",
    "self weight": "prelu",
    "self weight bias pad": "conv_tbc",
    "self weights minlength": "bincount",
    "size dtype layout device pin_memory memory_format": "empty.memory_format",
    "size fill_value dtype layout device pin_memory": "full",
    "size physical_layout dtype layout device pin_memory": "empty_permuted",
    "size stride dtype layout device pin_memory": "empty_strided",
    "tensors indexing": "meshgrid.indexing",
    "theta size align_corners": "affine_grid_generator",
    "v pow dim": "norm_except_dim",
    "weight indices offsets scale_grad_by_freq mode sparse per_sample_weights include_last_offset": "embedding_bag",
    "weight indices offsets scale_grad_by_freq mode sparse per_sample_weights include_last_offset padding_idx": """
        embedding_bag.padding_idx
    """,
    "weight indices padding_idx scale_grad_by_freq sparse": "embedding",
    "window_length periodic alpha beta dtype layout device pin_memory": "hamming_window.periodic_alpha_beta",
    "window_length periodic alpha dtype layout device pin_memory": "hamming_window.periodic_alpha",
    "window_length periodic beta dtype layout device pin_memory": "kaiser_window.beta",
    "x N": "linalg_vander",
    "x N increasing": "vander",
    "x y dim": "linalg_vecdot",
    "x1 x2 dim eps": "cosine_similarity",
    "x1 x2 p compute_mode": "cdist",
    "x1 x2 p eps keepdim": "pairwise_distance",
    "input weight bias running_mean running_var training momentum eps": """
        _native_batch_norm_legit_functional native_batch_norm
    """,
}  # fmt: skip

# Operators that return a list of tensors. The other ones with several results return each by itself.
LISTS = frozenset(
    (
        "broadcast_tensors", "chunk", "meshgrid", "split", "split_with_sizes", "tensor_split", "unbind", "unsafe_chunk",
        "unsafe_split", "unsafe_split_with_sizes",
    )
)  # fmt: skip

DTYPES = {
    1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "float16", 7: "float32", 8: "float64",
    10: "complex64", 11: "complex128", 12: "bool", 13: "bfloat16", 28: "uint16", 29: "float8_e4m3fn", 30: "float8_e5m2",
    31: "float8_e4m3fnuz", 32: "float8_e5m2fnuz", 34: "uint32", 35: "uint64",
}  # fmt: skip
STRIDED = 7
MEMORY_FORMATS = {1: "contiguous_format", 2: "channels_last", 3: "channels_last_3d", 4: "preserve_format"}

# Functions of Python's `operator`, and of torch, that compute sizes.
OPERATORS = frozenset(("add", "sub", "mul", "floordiv", "truediv", "pow", "mod", "neg"))
SYMBOLIC = frozenset(("sym_float", "sym_int", "sym_max", "sym_min", "sym_not", "sym_sqrt"))


@functools.cache
def _table() -> dict[str, list[str]]:
    return {name: arguments.split() for arguments, names in _ARGUMENTS.items() for name in names.split()}


def arguments_of(name: str) -> list[str]:
    """The names of an operator's arguments, in order. Raises: KeyError if it is not in the table.

    >>> from tensorgrad.export.schemas import arguments_of
    >>> arguments_of("add.Tensor")
    ['self', 'other', 'alpha']
    """
    return _table()[name.removesuffix(".default")]


def dtype_number(dtype: tensorgrad.dtype) -> int:
    """The number of a dtype. Raises: KeyError if it has none."""
    return {name: number for number, name in DTYPES.items()}[str(dtype).removeprefix("torch.")]
