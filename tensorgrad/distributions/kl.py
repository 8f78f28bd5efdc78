"""The Kullback–Leibler divergence: the formulas of the pairs that have a closed form (the dispatch: kl_dispatch.py).

Within a family, the formulas are written out. Between families, KL(p ‖ q) = E -log q(x) - entropy(p), and the mean over
p of -log q only requires some moments of p: one function for each q supports every p that has them.

Source of most formulas within families: F. Nielsen and V. Garcia, "Statistical exponential families: A digest with
flash cards", 2009.
"""

from __future__ import annotations

import math

import tensorgrad as torch
from tensorgrad.distributions.bernoulli import Bernoulli
from tensorgrad.distributions.beta import Beta
from tensorgrad.distributions.binomial import Binomial
from tensorgrad.distributions.categorical import Categorical
from tensorgrad.distributions.cauchy import Cauchy
from tensorgrad.distributions.continuous_bernoulli import ContinuousBernoulli
from tensorgrad.distributions.dirichlet import Dirichlet
from tensorgrad.distributions.exp_family import ExponentialFamily
from tensorgrad.distributions.exponential import Exponential
from tensorgrad.distributions.gamma import Gamma
from tensorgrad.distributions.geometric import Geometric
from tensorgrad.distributions.gumbel import Gumbel
from tensorgrad.distributions.half_normal import HalfNormal
from tensorgrad.distributions.independent import Independent
from tensorgrad.distributions.kl_dispatch import _KL_MEMOIZE as _KL_MEMOIZE
from tensorgrad.distributions.kl_dispatch import _KL_REGISTRY as _KL_REGISTRY
from tensorgrad.distributions.kl_dispatch import kl_divergence, register_kl
from tensorgrad.distributions.laplace import Laplace
from tensorgrad.distributions.lowrank_multivariate_normal import LowRankMultivariateNormal
from tensorgrad.distributions.multivariate_normal import MultivariateNormal, log_diagonal, solve_lower
from tensorgrad.distributions.normal import Normal
from tensorgrad.distributions.one_hot_categorical import OneHotCategorical
from tensorgrad.distributions.pareto import Pareto
from tensorgrad.distributions.poisson import Poisson
from tensorgrad.distributions.transformed_distribution import TransformedDistribution
from tensorgrad.distributions.uniform import Uniform
from tensorgrad.distributions.utils import euler_constant, sum_rightmost
from tensorgrad.nn.functional import softplus

__all__ = ["kl_divergence", "register_kl"]

# --- within a family: discrete ---------------------------------------------------------------------------------------


def _weighed(probs, difference, impossible):
    """Returns probs · difference of log probabilities: 0 where p has probability 0, ∞ where only q has."""
    return (probs * difference).masked_fill(impossible, math.inf).masked_fill(probs == 0, 0)


@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p, q):
    heads = _weighed(p.probs, softplus(-q.logits) - softplus(-p.logits), q.probs == 0)
    tails = _weighed(1 - p.probs, softplus(q.logits) - softplus(p.logits), q.probs == 1)
    return heads + tails


@register_kl(Binomial, Binomial)
def _binomial(p, q):
    if (p.total_count < q.total_count).any():
        raise NotImplementedError("KL between Binomials where q.total_count > p.total_count is not implemented")
    once = p.probs * (p.logits - q.logits) + torch.log1p(-p.probs) - torch.log1p(-q.probs)
    return (p.total_count * once).masked_fill(p.total_count > q.total_count, math.inf)


@register_kl(Categorical, Categorical)
def _categorical(p, q):
    return _weighed(p.probs, p.logits - q.logits, q.probs == 0).sum(-1)


@register_kl(OneHotCategorical, OneHotCategorical)
def _one_hot(p, q):
    return kl_divergence(p._categorical, q._categorical)


@register_kl(Geometric, Geometric)
def _geometric(p, q):
    return -p.entropy() - torch.log1p(-q.probs) / p.probs - q.logits


@register_kl(Poisson, Poisson)
def _poisson(p, q):
    return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)


# --- within a family: continuous scalars -----------------------------------------------------------------------------


@register_kl(Beta, Beta)
def _beta(p, q):
    return kl_divergence(p._dirichlet, q._dirichlet)


@register_kl(Dirichlet, Dirichlet)
def _dirichlet(p, q):
    a, b = p.concentration, q.concentration
    mean_log = torch.digamma(a) - torch.digamma(a.sum(-1, True))
    return q._log_beta(b) - p._log_beta(a) + ((a - b) * mean_log).sum(-1)


@register_kl(ContinuousBernoulli, ContinuousBernoulli)
def _continuous_bernoulli(p, q):
    at_0 = torch.log1p(-p.probs) - torch.log1p(-q.probs)
    return p.mean * (p.logits - q.logits) + p._log_norm() + at_0 - q._log_norm()


@register_kl(Exponential, Exponential)
def _exponential(p, q):
    ratio = q.rate / p.rate
    return ratio - ratio.log() - 1


@register_kl(Gamma, Gamma)
def _gamma(p, q):
    a, b = p.concentration, q.concentration
    scales = b * (p.rate / q.rate).log() + a * (q.rate / p.rate - 1)
    return scales + torch.lgamma(b) - torch.lgamma(a) + (a - b) * torch.digamma(a)


@register_kl(Gumbel, Gumbel)
def _gumbel(p, q):
    ratio, shift = p.scale / q.scale, (p.loc - q.loc) / q.scale
    bend = (torch.lgamma(1 + ratio) - shift).exp()
    return shift - ratio.log() + euler_constant * (ratio - 1) + bend - 1


@register_kl(Laplace, Laplace)
def _laplace(p, q):
    ratio, apart = p.scale / q.scale, (p.loc - q.loc).abs()
    return apart / q.scale + ratio * torch.exp(-apart / p.scale) - ratio.log() - 1


@register_kl(Normal, Normal)
def _normal(p, q):
    ratio = (p.scale / q.scale).pow(2)
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale).pow(2) - 1 - ratio.log())


@register_kl(HalfNormal, HalfNormal)
def _half_normal(p, q):
    return kl_divergence(p.base_dist, q.base_dist)


@register_kl(Pareto, Pareto)
def _pareto(p, q):
    """Source: M. Gil, "On Rényi Divergence Measures for Continuous Alphabet Sources", 2011."""
    ratio = q.alpha / p.alpha
    value = q.alpha * (p.scale / q.scale).log() - ratio.log() + ratio - 1
    return value.masked_fill(p.scale < q.scale, math.inf)


@register_kl(Uniform, Uniform)
def _uniform(p, q):
    value = ((q.high - q.low) / (p.high - p.low)).log()
    return value.masked_fill((q.low > p.low) | (q.high < p.high), math.inf)


@register_kl(Cauchy, Cauchy)
def _cauchy(p, q):
    """Source: F. Chyzak and F. Nielsen, "A closed-form formula for the Kullback–Leibler divergence between Cauchy
    distributions", 2019."""
    far = ((p.scale + q.scale).pow(2) + (p.loc - q.loc).pow(2)).log()
    return far - (4 * p.scale * q.scale).log()


# --- within a family: vectors, and general formulas ------------------------------------------------------------------


@register_kl(MultivariateNormal, MultivariateNormal)
@register_kl(MultivariateNormal, LowRankMultivariateNormal)
@register_kl(LowRankMultivariateNormal, MultivariateNormal)
@register_kl(LowRankMultivariateNormal, LowRankMultivariateNormal)
def _multivariate_normal(p, q):
    """½ (tr Q⁻¹P + squared distance of the means by Q⁻¹ - n + log det Q / det P)"""
    if p.event_shape != q.event_shape:
        raise ValueError(
            f"KL-divergence between two {_kind(p)}Multivariate Normals with different event shapes cannot be computed"
            if _kind(p) == _kind(q)
            else "KL-divergence between two (Low Rank) Multivariate Normals with different event shapes cannot be "
            "computed"
        )
    log_dets = _half_log_det(q) - _half_log_det(p)
    return log_dets + 0.5 * (_trace_ratio(p, q) + _squared_distance(q, q.loc - p.loc) - p.event_shape[0])


def _kind(normal) -> str:
    return "Low Rank " if isinstance(normal, LowRankMultivariateNormal) else ""


def _half_log_det(normal):
    if isinstance(normal, LowRankMultivariateNormal):
        return normal._half_log_det()
    return log_diagonal(normal._unbroadcasted_scale_tril)


def _squared_distance(normal, difference):
    if isinstance(normal, LowRankMultivariateNormal):
        return normal._squared_distance(difference)
    return solve_lower(normal._unbroadcasted_scale_tril, difference).pow(2).sum(-1)


def _trace_ratio(p, q):
    """Returns tr Q⁻¹P, the sum of the squared norms (by Q⁻¹) of the columns of a factor of P."""
    if isinstance(p, LowRankMultivariateNormal):
        diagonal = torch.diag_embed(p._unbroadcasted_cov_diag.sqrt())
        return _column_sum(q, p._unbroadcasted_cov_factor) + _column_sum(q, diagonal)
    return _column_sum(q, p._unbroadcasted_scale_tril)


def _column_sum(q, matrix):
    columns = matrix.movedim(-1, 0)
    # The dimension of the columns must not be confused with a batch dimension.
    missing = len(q.batch_shape) - (columns.dim() - 2)
    columns = columns.reshape(columns.shape[0], *(1,) * missing, *columns.shape[1:])
    return _squared_distance(q, columns).sum(0)


@register_kl(ExponentialFamily, ExponentialFamily)
def _exponential_family(p, q):
    """A Bregman divergence of the log normalizer, whose gradient is the mean of p's statistics."""
    if type(p) is not type(q):
        raise NotImplementedError(
            "The cross KL-divergence between different exponential families cannot be computed using Bregman "
            "divergences"
        )
    p_natural, p_normalizer, means = p._mean_statistics()
    q_natural = q._natural_params
    result = q._log_normalizer(*q_natural) - p_normalizer
    for ours, theirs, mean in zip(p_natural, q_natural, means):
        result = result - sum_rightmost((theirs - ours) * mean, len(q.event_shape))
    return result


@register_kl(Independent, Independent)
def _independent(p, q):
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError
    return sum_rightmost(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)


@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed(p, q):
    """The same change of variables on both sides does not change the divergence."""
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotImplementedError
    return kl_divergence(p.base_dist, q.base_dist)


# --- between families ------------------------------------------------------------------------------------------------


def _register_all(pairs_of_p, q):
    """A decorator that registers a formula for several classes of p."""

    def decorator(formula):
        for p in pairs_of_p:
            register_kl(p, q)(formula)
        return formula

    return decorator


@_register_all((Beta, ContinuousBernoulli, Exponential, Gamma, Gumbel, Laplace, Pareto, Uniform), Normal)
def _to_normal(p, q):
    squared = p.variance + (p.mean - q.loc).pow(2)
    return 0.5 * squared / q.scale.pow(2) + q.scale.log() + 0.5 * math.log(2 * math.pi) - p.entropy()


@_register_all((Beta, ContinuousBernoulli, Gamma, Pareto, Uniform), Exponential)
def _to_exponential(p, q):
    return _outside(p, q.rate * p.mean - q.rate.log() - p.entropy(), low=0)


@_register_all((Beta, Exponential, Pareto, Uniform), Gamma)
def _to_gamma(p, q):
    normalizer = torch.lgamma(q.concentration) - q.concentration * q.rate.log()
    value = q.rate * p.mean - (q.concentration - 1) * _mean_log(p) + normalizer - p.entropy()
    return _outside(p, value, low=0)


@_register_all((Exponential, Gamma, Normal, Uniform), Gumbel)
def _to_gumbel(p, q):
    decay = _mean_exp(p, -q.scale.reciprocal()) * (q.loc / q.scale).exp()
    return (p.mean - q.loc) / q.scale + decay + q.scale.log() - p.entropy()


@register_kl(Normal, Laplace)
def _normal_to_laplace(p, q):
    shift = (p.loc - q.loc) / p.scale
    spread = math.sqrt(2 / math.pi) * torch.exp(-0.5 * shift.pow(2)) + shift * torch.erf(shift / math.sqrt(2))
    return p.scale * spread / q.scale + (2 * q.scale).log() - p.entropy()


@_register_all((Beta, Uniform), ContinuousBernoulli)
def _to_continuous_bernoulli(p, q):
    value = -p.mean * q.logits - torch.log1p(-q.probs) - q._log_norm() - p.entropy()
    return _outside(p, value, low=0, high=1)


@_register_all((Beta, ContinuousBernoulli), Uniform)
def _unit_interval_to_uniform(p, q):
    return (q.entropy() - p.entropy()).masked_fill((q.low > 0) | (q.high < 1), math.inf)


@register_kl(Uniform, Beta)
def _uniform_to_beta(p, q):
    a, b = q.concentration1, q.concentration0
    mirrored = Uniform(1 - p.high, 1 - p.low, validate_args=False)
    log_beta = torch.lgamma(a) + torch.lgamma(b) - torch.lgamma(a + b)
    value = log_beta - (a - 1) * _mean_log(p) - (b - 1) * _mean_log(mirrored) - p.entropy()
    return _outside(p, value, low=0, high=1)


@register_kl(Uniform, Pareto)
def _uniform_to_pareto(p, q):
    value = (q.alpha + 1) * _mean_log(p) - q.alpha.log() - q.alpha * q.scale.log() - p.entropy()
    return value.masked_fill(p.low < q.scale, math.inf)


@register_kl(Bernoulli, Poisson)
def _bernoulli_to_poisson(p, q):
    return q.rate - p.probs * q.rate.log() - p.entropy()


def _outside(p, value, low, high=math.inf):
    """Returns ∞ where a uniform p extends beyond q's support (the other p, on [0, ∞) or [0, 1], do not)."""
    return value.masked_fill((p.low < low) | (p.high > high), math.inf) if isinstance(p, Uniform) else value


def _mean_log(p):
    """E log x"""
    if isinstance(p, Beta):
        return torch.digamma(p.concentration1) - torch.digamma(p.concentration1 + p.concentration0)
    if isinstance(p, Exponential):
        return -euler_constant - p.rate.log()
    if isinstance(p, Pareto):
        return p.scale.log() + p.alpha.reciprocal()
    return (torch.xlogy(p.high, p.high) - torch.xlogy(p.low, p.low)) / (p.high - p.low) - 1  # Uniform


def _mean_exp(p, t):
    """E exp(t x), for negative t"""
    if isinstance(p, Exponential):
        return p.rate / (p.rate - t)
    if isinstance(p, Gamma):
        return torch.exp(-p.concentration * torch.log1p(-t / p.rate))
    if isinstance(p, Normal):
        return torch.exp(t * p.loc + 0.5 * (t * p.scale).pow(2))
    return ((t * p.high).exp() - (t * p.low).exp()) / (t * (p.high - p.low))  # Uniform


# --- pairs where p takes values outside q's support ------------------------------------------------------------------


def _infinite(p, q):
    return torch.full_like(p.mean + q.mean, math.inf)


_WITHOUT_COMMON_SUPPORT: dict[type, list[type]] = {
    Beta: [Pareto],
    ContinuousBernoulli: [Pareto],
    Exponential: [Beta, ContinuousBernoulli, Pareto, Uniform],
    Gamma: [Beta, ContinuousBernoulli, Pareto, Uniform],
    Gumbel: [Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform],
    Laplace: [Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform],
    Normal: [Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform],
    Pareto: [Beta, ContinuousBernoulli, Uniform],
    Poisson: [Bernoulli, Binomial],
}
for _p, _qs in _WITHOUT_COMMON_SUPPORT.items():
    for _q in _qs:
        register_kl(_p, _q)(_infinite)
