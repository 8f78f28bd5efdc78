"""`torch.distributions`: probability distributions, sampling, densities, moments and divergences.

One file per distribution, named as in PyTorch. `distribution.py` has the base class, `constraints.py` the constraints
on parameters and samples, `transforms.py` changes of variables, and `kl.py` the Kullback–Leibler divergence.
"""

from typing import TYPE_CHECKING, Any

from tensorgrad.system.lazy_modules import whole

# Models of libraries import a constraint or one distribution, so files are loaded on first access. Name -> its file, if
# that is not called like the name.
_ELSEWHERE = {
    "ContinuousBernoulli": "continuous_bernoulli", "ExponentialFamily": "exp_family", "GeneralizedPareto":
    "generalized_pareto", "HalfCauchy": "half_cauchy", "HalfNormal": "half_normal", "InverseGamma": "inverse_gamma",
    "LKJCholesky": "lkj_cholesky", "LogNormal": "log_normal", "LogisticNormal": "logistic_normal",
    "LowRankMultivariateNormal": "lowrank_multivariate_normal", "MixtureSameFamily": "mixture_same_family",
    "MultivariateNormal": "multivariate_normal", "NegativeBinomial": "negative_binomial", "OneHotCategorical":
    "one_hot_categorical", "OneHotCategoricalStraightThrough": "one_hot_categorical", "RelaxedBernoulli":
    "relaxed_bernoulli", "RelaxedOneHotCategorical": "relaxed_categorical", "StudentT": "studentT",
    "TransformedDistribution": "transformed_distribution", "VonMises": "von_mises", "biject_to":
    "constraint_registry", "kl_divergence": "kl", "register_kl": "kl", "transform_to": "constraint_registry",
}  # fmt: skip
_TRANSFORMS = (
    "AbsTransform", "AffineTransform", "CatTransform", "ComposeTransform", "CorrCholeskyTransform",
    "CumulativeDistributionTransform", "ExpTransform", "IndependentTransform", "LowerCholeskyTransform",
    "PositiveDefiniteTransform", "PowerTransform", "ReshapeTransform", "SigmoidTransform", "SoftmaxTransform",
    "SoftplusTransform", "StackTransform", "StickBreakingTransform", "TanhTransform", "Transform",
    "identity_transform",
)  # fmt: skip
_MODULES = (
    "bernoulli", "beta", "binomial", "categorical", "cauchy", "chi2", "constraint_registry", "constraints",
    "continuous_bernoulli", "dirichlet", "distribution", "exp_family", "exponential", "fishersnedecor", "gamma",
    "generalized_pareto", "geometric", "gumbel", "half_cauchy", "half_normal", "independent", "inverse_gamma", "kl",
    "kl_dispatch", "kumaraswamy", "laplace", "lkj_cholesky", "log_normal", "logistic_normal",
    "lowrank_multivariate_normal", "mixture_same_family", "multinomial", "multivariate_normal", "negative_binomial",
    "normal", "one_hot_categorical", "pareto", "poisson", "relaxed_bernoulli", "relaxed_categorical", "studentT",
    "transformed_distribution", "transforms", "uniform", "utils", "von_mises", "weibull", "wishart",
)  # fmt: skip

__all__ = [
    "Bernoulli", "Beta", "Binomial", "Categorical", "Cauchy", "Chi2", "ContinuousBernoulli", "Dirichlet",
    "Distribution", "Exponential", "ExponentialFamily", "FisherSnedecor", "Gamma", "GeneralizedPareto", "Geometric",
    "Gumbel", "HalfCauchy", "HalfNormal", "Independent", "InverseGamma", "Kumaraswamy", "LKJCholesky", "Laplace",
    "LogNormal", "LogisticNormal", "LowRankMultivariateNormal", "MixtureSameFamily", "Multinomial",
    "MultivariateNormal", "NegativeBinomial", "Normal", "OneHotCategorical", "OneHotCategoricalStraightThrough",
    "Pareto", "Poisson", "RelaxedBernoulli", "RelaxedOneHotCategorical", "StudentT", "TransformedDistribution",
    "Uniform", "VonMises", "Weibull", "Wishart", "biject_to", "kl_divergence", "register_kl", "transform_to",
    *_TRANSFORMS,
]  # fmt: skip

if TYPE_CHECKING:
    from tensorgrad.distributions import constraints, kl, transforms
    from tensorgrad.distributions.bernoulli import Bernoulli
    from tensorgrad.distributions.beta import Beta
    from tensorgrad.distributions.binomial import Binomial
    from tensorgrad.distributions.categorical import Categorical
    from tensorgrad.distributions.cauchy import Cauchy
    from tensorgrad.distributions.chi2 import Chi2
    from tensorgrad.distributions.constraint_registry import biject_to, transform_to
    from tensorgrad.distributions.continuous_bernoulli import ContinuousBernoulli
    from tensorgrad.distributions.dirichlet import Dirichlet
    from tensorgrad.distributions.distribution import Distribution
    from tensorgrad.distributions.exp_family import ExponentialFamily
    from tensorgrad.distributions.exponential import Exponential
    from tensorgrad.distributions.fishersnedecor import FisherSnedecor
    from tensorgrad.distributions.gamma import Gamma
    from tensorgrad.distributions.generalized_pareto import GeneralizedPareto
    from tensorgrad.distributions.geometric import Geometric
    from tensorgrad.distributions.gumbel import Gumbel
    from tensorgrad.distributions.half_cauchy import HalfCauchy
    from tensorgrad.distributions.half_normal import HalfNormal
    from tensorgrad.distributions.independent import Independent
    from tensorgrad.distributions.inverse_gamma import InverseGamma
    from tensorgrad.distributions.kl import kl_divergence, register_kl
    from tensorgrad.distributions.kumaraswamy import Kumaraswamy
    from tensorgrad.distributions.laplace import Laplace
    from tensorgrad.distributions.lkj_cholesky import LKJCholesky
    from tensorgrad.distributions.log_normal import LogNormal
    from tensorgrad.distributions.logistic_normal import LogisticNormal
    from tensorgrad.distributions.lowrank_multivariate_normal import LowRankMultivariateNormal
    from tensorgrad.distributions.mixture_same_family import MixtureSameFamily
    from tensorgrad.distributions.multinomial import Multinomial
    from tensorgrad.distributions.multivariate_normal import MultivariateNormal
    from tensorgrad.distributions.negative_binomial import NegativeBinomial
    from tensorgrad.distributions.normal import Normal
    from tensorgrad.distributions.one_hot_categorical import OneHotCategorical, OneHotCategoricalStraightThrough
    from tensorgrad.distributions.pareto import Pareto
    from tensorgrad.distributions.poisson import Poisson
    from tensorgrad.distributions.relaxed_bernoulli import RelaxedBernoulli
    from tensorgrad.distributions.relaxed_categorical import RelaxedOneHotCategorical
    from tensorgrad.distributions.studentT import StudentT
    from tensorgrad.distributions.transformed_distribution import TransformedDistribution
    from tensorgrad.distributions.transforms import *
    from tensorgrad.distributions.uniform import Uniform
    from tensorgrad.distributions.von_mises import VonMises
    from tensorgrad.distributions.weibull import Weibull
    from tensorgrad.distributions.wishart import Wishart
else:  # hidden from type checkers, which would otherwise accept any misspelled name

    def __getattr__(name: str) -> Any:
        from importlib import import_module

        if name in _MODULES:
            return import_module(f"{__name__}.{name}")
        if name in __all__:
            file = "transforms" if name in _TRANSFORMS else _ELSEWHERE.get(name, name.lower())
            value = globals()[name] = getattr(import_module(f"{__name__}.{file}"), name)
            return value
        raise import_module("tensorgrad.system.missing_names").no_attribute(__name__, name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__, *_MODULES})


whole(__name__)
