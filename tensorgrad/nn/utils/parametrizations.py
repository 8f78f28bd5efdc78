"""Standard parametrizations: orthogonal matrices, weight normalization, spectral normalization."""

from __future__ import annotations

from typing import Any

import tensorgrad as torch
from tensorgrad.nn import functional as F
from tensorgrad.nn.module import Module
from tensorgrad.nn.utils import parametrize
from tensorgrad.nn.utils.spectral_norm import output_dim
from tensorgrad.ops.nn.weight_norm import _weight_norm
from tensorgrad.tensor import Tensor

_MAPS = ("matrix_exp", "cayley", "householder")


def _tensor_of(module: Any, name: str) -> Tensor:
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    return weight


# --- orthogonal ------------------------------------------------------------------------------------------------------


def _is_orthogonal(q: Tensor) -> bool:
    rows, columns = q.shape[-2:]
    identity = torch.eye(columns, dtype=q.dtype, device=q.device)
    return torch.allclose(q.mH @ q, identity, atol=10.0 * rows * torch.finfo(q.dtype).eps)


def _orthogonalized(matrix: Tensor) -> Tensor:
    """Returns the Q of the unique QR decomposition whose R has a positive diagonal."""
    reflectors, tau = torch.geqrf(matrix)
    q = torch.linalg.householder_product(reflectors, tau)
    return q * reflectors.diagonal(dim1=-2, dim2=-1).sgn().unsqueeze(-2)


class _Orthogonal(Module):
    """Maps any matrix, (..., n, k), to one with orthonormal columns (or rows, if it has more columns than rows).

    The exponential and the Cayley map, (1 + A/2)(1 - A/2)⁻¹, map the skew-symmetric A = L - Lᴴ, built from the lower
    triangle L, to an orthogonal matrix, whose first k columns are used. The product of Householder reflectors needs no
    square matrix. If there is a `base`, the result is multiplied by it. The base maps the initial value to the
    parameter's former value, near which the maps behave best ("dynamic trivialization", Lezcano-Casado, 2019).
    """

    def __init__(self, weight: Tensor, orthogonal_map: str, *, use_trivialization: bool = True) -> None:
        super().__init__()
        if weight.is_complex() and orthogonal_map == "householder":
            raise ValueError("The householder parametrization does not support complex tensors.")
        self.shape, self.orthogonal_map = weight.shape, orthogonal_map
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, x: Tensor) -> Tensor:
        wide = x.shape[-2] < x.shape[-1]
        x = x.mT if wide else x
        q = self._reflect(x) if self.orthogonal_map == "householder" else self._rotate(x)
        if hasattr(self, "base"):
            q = self.base @ q
        return q.mT if wide else q

    def _rotate(self, x: Tensor) -> Tensor:
        n, k = x.shape[-2:]
        lower = x.tril()
        if n != k:
            padding = x.new_zeros(n, n - k).expand(*x.shape[:-2], -1, -1)
            lower = torch.cat([lower, padding], dim=-1)
        skew = lower - lower.mH
        if self.orthogonal_map == "matrix_exp":
            q = torch.matrix_exp(skew)
        else:
            one = torch.eye(n, dtype=skew.dtype, device=skew.device)
            q = torch.linalg.solve(one - 0.5 * skew, one + 0.5 * skew)
        return q[..., :k] if n != k else q

    def _reflect(self, x: Tensor) -> Tensor:
        below = x.tril(diagonal=-1)
        tau = 2.0 / (1.0 + (below * below).sum(dim=-2))
        q = torch.linalg.householder_product(below, tau)
        # The diagonal, 1 or -1, stores the signs of the columns of an assigned parameter.
        return q * x.diagonal(dim1=-2, dim2=-1).int().unsqueeze(-2)

    @torch.no_grad()
    def right_inverse(self, q: Tensor) -> Tensor:
        """Returns a tensor that is mapped to `q` if `q` is orthogonal, and to its orthogonal factor otherwise."""
        if q.shape != self.shape:
            raise ValueError(
                f"Expected a matrix or batch of matrices of shape {self.shape}. Got a tensor of shape {q.shape}."
            )
        given, wide = q, q.shape[-2] < q.shape[-1]
        q = q.mT if wide else q
        n, k = q.shape[-2:]
        if not hasattr(self, "base"):
            if self.orthogonal_map != "householder":
                raise NotImplementedError(
                    "It is not possible to assign to the matrix exponential or the Cayley parametrizations when "
                    "use_trivialization=False."
                )
            reflectors, tau = torch.geqrf(q)
            diagonal = reflectors.diagonal(dim1=-2, dim2=-1)
            diagonal.copy_(torch.where(tau == 0.0, -diagonal.sign(), diagonal.sign()))
            return reflectors.mT if wide else reflectors
        if n == k:
            self.base = q.clone() if _is_orthogonal(q) else _orthogonalized(q)
        else:  # completed to a square matrix by random columns
            random = torch.randn(*q.shape[:-2], n, n - k, dtype=q.dtype, device=q.device)
            self.base = _orthogonalized(torch.cat([q, random], dim=-1))
        # All three maps map the negated identity to the identity.
        start = torch.zeros_like(given)
        start.diagonal(dim1=-2, dim2=-1).fill_(-1.0)
        return start


def orthogonal(
    module: Any, name: str = "weight", orthogonal_map: str | None = None, *, use_trivialization: bool = True
) -> Any:
    """Keeps a weight orthogonal: its columns (or its rows, if there are fewer rows) are orthonormal.

    Args:
        module: the layer, changed in place.
        name: the name of its parameter, a matrix or a batch of matrices.
        orthogonal_map: `"matrix_exp"`, `"cayley"` or `"householder"`; by default the first for square and complex
            matrices, and the last otherwise.
        use_trivialization: store the current value (made orthogonal) in a buffer, as the starting point.

    Returns:
        `module`.

    Raises:
        ValueError: the parameter does not exist or has fewer than two dimensions, or the map is unknown.

    >>> layer = torch.nn.utils.parametrizations.orthogonal(torch.nn.Linear(2, 4))
    >>> torch.allclose(layer.weight.T @ layer.weight, torch.eye(2), atol=1e-6)
    True
    """
    weight = _tensor_of(module, name)
    if weight.ndim < 2:
        raise ValueError(f"Expected a matrix or batch of matrices. Got a tensor of {weight.ndim} dimensions.")
    if orthogonal_map is None:
        square = weight.size(-2) == weight.size(-1)
        orthogonal_map = "matrix_exp" if square or weight.is_complex() else "householder"
    if orthogonal_map not in _MAPS:
        raise ValueError(
            f'orthogonal_map has to be one of "matrix_exp", "cayley", "householder". Got: {orthogonal_map}'
        )
    made = _Orthogonal(weight, orthogonal_map, use_trivialization=use_trivialization)
    return parametrize.register_parametrization(module, name, made, unsafe=True)


# --- weight norm -----------------------------------------------------------------------------------------------------


class _WeightNorm(Module):
    """Computes g · v / ‖v‖, with a length g for each index of one dimension."""

    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        return _weight_norm(weight_v, weight_g, self.dim)

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the lengths, and the weight itself as the directions."""
        return torch.norm_except_dim(weight, 2, self.dim), weight


def weight_norm(module: Any, name: str = "weight", dim: int | None = 0) -> Any:
    """Replaces a weight by the product of lengths (`original0`) and directions (`original1`).

    Salimans and Kingma, 2016. Checkpoints of the older `tensorgrad.nn.utils.weight_norm` can be loaded.

    Args:
        module: the layer, changed in place.
        name: the name of its parameter.
        dim: the dimension with one length per index; `None` for a single length for the whole weight.

    Returns:
        `module`.

    >>> layer = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(20, 40))
    >>> layer.parametrizations.weight.original0.shape
    torch.Size([40, 1])
    """
    parametrize.register_parametrization(module, name, _WeightNorm(dim), unsafe=True)

    def read_older(state_dict: Any, prefix: str, *rest: Any) -> None:
        older = [f"{prefix}{name}_{part}" for part in "gv"]
        if all(key in state_dict for key in older):
            for i, key in enumerate(older):
                state_dict[f"{prefix}parametrizations.{name}.original{i}"] = state_dict.pop(key)

    module._register_load_state_dict_pre_hook(read_older)
    return module


# --- spectral norm ---------------------------------------------------------------------------------------------------


class _SpectralNorm(Module):
    """Divides a weight by its largest singular value, estimated by the power method (see `spectral_norm.py`)."""

    def __init__(self, weight: Tensor, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12) -> None:
        super().__init__()
        ndim = weight.ndim
        if not -ndim <= dim < ndim:
            raise IndexError(f"Dimension out of range (expected to be in range of [-{ndim}, {ndim - 1}] but got {dim})")
        if n_power_iterations <= 0:
            raise ValueError(
                f"Expected n_power_iterations to be positive, but got n_power_iterations={n_power_iterations}"
            )
        self.dim, self.eps = dim % ndim, eps
        if ndim > 1:
            self.n_power_iterations = n_power_iterations
            matrix = self._as_matrix(weight)
            for vector, size in (("_u", matrix.shape[0]), ("_v", matrix.shape[1])):
                random = matrix.new_empty(size).normal_(0, 1)
                self.register_buffer(vector, F.normalize(random, dim=0, eps=eps))
            self._power_method(matrix, 15)  # enough for a good first estimate

    def _as_matrix(self, weight: Tensor) -> Tensor:
        if self.dim != 0:
            weight = weight.permute(self.dim, *(d for d in range(weight.dim()) if d != self.dim))
        return weight.flatten(1)

    @torch.no_grad()
    def _power_method(self, matrix: Tensor, steps: int) -> None:
        for _ in range(steps):
            F.normalize(torch.mv(matrix, self._v), dim=0, eps=self.eps, out=self._u)
            F.normalize(torch.mv(matrix.H, self._u), dim=0, eps=self.eps, out=self._v)

    def forward(self, weight: Tensor) -> Tensor:
        if weight.ndim == 1:
            return F.normalize(weight, dim=0, eps=self.eps)
        matrix = self._as_matrix(weight)
        if self.training:
            self._power_method(matrix, self.n_power_iterations)
        u, v = self._u.clone(), self._v.clone()  # backward needs these values, and the next call overwrites the buffers
        return weight / torch.vdot(u, torch.mv(matrix, v))

    def right_inverse(self, value: Tensor) -> Tensor:
        """Returns the value itself, assuming that it is normalized."""
        return value


def spectral_norm(
    module: Any, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Any:
    """Divides a weight by its largest singular value, or a vector by its length (Miyato et al., 2018).

    Args:
        module: the layer, changed in place.
        name: the name of its parameter.
        n_power_iterations: the steps of the power method whenever the weight is read in training mode.
        eps: the lower bound of the norms that vectors are divided by.
        dim: the dimension of the outputs; by default 0, or 1 for transposed convolutions.

    Returns:
        `module`.

    Raises:
        ValueError: the parameter does not exist, or `n_power_iterations` is not positive.
        IndexError: the dimension does not exist.

    >>> layer = torch.nn.utils.parametrizations.spectral_norm(torch.nn.Linear(20, 40))
    >>> bool(abs(torch.linalg.matrix_norm(layer.weight, 2) - 1) < 0.1)
    True
    """
    made = _SpectralNorm(_tensor_of(module, name), n_power_iterations, output_dim(module, dim), eps)
    return parametrize.register_parametrization(module, name, made)
