"""The hyperparameters of a run and the metrics reached with them."""

from __future__ import annotations

from typing import Any

from tensorgrad.tensor import Tensor
from tensorgrad.utils.tensorboard.messages import messages, metadata


def hparams(
    hparam_dict: dict, metric_dict: dict, hparam_domain_discrete: dict[str, list] | None = None
) -> tuple[Any, Any, Any]:
    """Returns the three entries that TensorBoard needs: the experiment, this run's settings, and the end of the run.

    Args:
        hparam_dict: settings: numbers, strings or one-element tensors; settings that are None are left out.
        metric_dict: the results, by name.
        hparam_domain_discrete: all possible values of a setting, by name.

    Raises:
        TypeError: If one of the three is not a dictionary, or a domain does not fit its setting.
        ValueError: If a setting has another type.
    """
    from tensorboard.plugins.hparams import api_pb2 as api
    from tensorboard.plugins.hparams import metadata as about
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData, SessionEndInfo, SessionStartInfo

    domains = hparam_domain_discrete or {}
    _check(hparam_dict, metric_dict, domains)
    start, known = SessionStartInfo(), []
    for name, value in hparam_dict.items():
        if value is None:
            continue
        if isinstance(value, Tensor):
            value = value.item()
        if isinstance(value, str):
            start.hparams[name].string_value = value
            kind, field = "DATA_TYPE_STRING", "string_value"
        elif isinstance(value, int | float):  # including bool, which PyTorch writes as 1 and 0
            start.hparams[name].number_value = value
            kind, field = "DATA_TYPE_FLOAT64", "number_value"
        else:
            raise ValueError(
                f"value should be one of int, float, str, bool, or torch.Tensor, but {name!r} is {type(value).__name__}"
            )
        info = api.HParamInfo(name=name, type=api.DataType.Value(kind))
        for choice in domains.get(name, ()):
            setattr(info.domain_discrete.values.add(), field, choice)
        known.append(info)
    experiment = api.Experiment(
        hparam_infos=known, metric_infos=[api.MetricInfo(name=api.MetricName(tag=name)) for name in metric_dict]
    )
    end = SessionEndInfo(status=api.Status.Value("STATUS_SUCCESS"))

    def entry(tag: str, **content: Any) -> Any:
        data = HParamsPluginData(version=about.PLUGIN_DATA_VERSION, **content).SerializeToString()
        kind = messages().Summary
        return kind(value=[kind.Value(tag=tag, metadata=metadata(about.PLUGIN_NAME, data))])

    return (
        entry(about.EXPERIMENT_TAG, experiment=experiment),
        entry(about.SESSION_START_INFO_TAG, session_start_info=start),
        entry(about.SESSION_END_INFO_TAG, session_end_info=end),
    )


def _check(settings: dict, metrics: dict, domains: dict) -> None:
    if type(settings) is not dict or type(metrics) is not dict:
        raise TypeError("hparam_dict and metric_dict should be dictionary.")
    if not isinstance(domains, dict):
        raise TypeError("parameter: hparam_domain_discrete should be a dictionary, nothing logged.")
    for name, choices in domains.items():
        fits = name in settings and isinstance(choices, list)
        if not fits or not all(isinstance(choice, type(settings[name])) for choice in choices):
            raise TypeError(
                f"parameter: hparam_domain_discrete[{name}] should be a list of same type as hparam_dict[{name}]."
            )
