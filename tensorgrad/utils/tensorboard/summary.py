"""The entries in TensorBoard's files: each function here makes one `Summary` message."""

from __future__ import annotations

import io
import json
import warnings
import wave
from collections.abc import Sequence
from typing import Any

import numpy as np

from tensorgrad.tensor import Tensor
from tensorgrad.utils.tensorboard.hparams import hparams  # noqa: F401 (PyTorch has it here, and programs import it)
from tensorgrad.utils.tensorboard.messages import array_of, messages, metadata

THRESHOLDS = 127  # TensorBoard's limit for a precision-recall curve


def _one(tag: str, **content: Any) -> Any:
    kind = messages().Summary
    return kind(value=[kind.Value(tag=tag, **content)])


def scalar(name: str, value: Any, new_style: bool = False, double_precision: bool = False) -> Any:
    """A scalar. In the newer format (`new_style`) it is stored as a tensor."""
    array = array_of(value).squeeze()
    if array.ndim != 0:
        raise AssertionError(
            f"Tensor should contain one element (0 dimensions). Was given size: {array.size} and {array.ndim} "
            "dimensions."
        )
    number = float(array)
    if not new_style:
        return _one(name, simple_value=number)
    dtype = np.float64 if double_precision else np.float32
    return _one(name, tensor=messages().tensor(number, dtype=dtype), metadata=metadata("scalars"))


def tensor(tag: str, value: Tensor) -> Any:
    """All elements of a tensor. Raises: ValueError if it is too large."""
    if value.numel() * value.itemsize >= 1 << 31:
        raise ValueError("tensor is bigger than protocol buffer's hard limit of 2GB in size")
    return _one(tag, tensor=messages().tensor(array_of(value)), metadata=metadata("tensor"))


def histogram(name: str, values: Any, bins: Any, max_bins: int | None = None) -> Any:
    """A histogram, with the bins from the smallest to the largest value.

    Args:
        bins: as for `numpy.histogram`.
        max_bins: merges neighboring bins until there are about this many.

    Raises: ValueError if there are no values, or none of them is in a bin.
    """
    x = array_of(values).astype(np.float64).reshape(-1)
    if x.size == 0:
        raise ValueError("The input has no element.")
    counts, limits = np.histogram(x, bins=bins)
    if max_bins is not None and len(counts) > max_bins:
        starts = np.arange(0, len(counts), len(counts) // max_bins)
        counts, limits = np.add.reduceat(counts, starts), np.append(limits[starts], limits[-1])
    filled = np.flatnonzero(counts)
    if not filled.size:
        raise ValueError(f"add_histogram: the histogram of {name!r} is empty: none of the values is in a bin")
    first, end = filled[0], filled[-1] + 1
    # A bin is stored by its upper limit only, so an empty bin before the first one marks where it begins.
    before = [0] if first == 0 else [counts[first - 1]]
    return histogram_raw(
        name, x.min(), x.max(), len(x), x.sum(), x.dot(x), limits[first : end + 1], [*before, *counts[first:end]]
    )


def histogram_raw(
    name: str, min: float, max: float, num: int, sum: float, sum_squares: float, limits: Any, counts: Any
) -> Any:
    """A histogram from precomputed counts."""
    content = messages().Histogram(
        min=min, max=max, num=num, sum=sum, sum_squares=sum_squares, bucket_limit=list(limits), bucket=list(counts)
    )
    return _one(name, histo=content)


def text(tag: str, value: str) -> Any:
    """A string, shown as Markdown."""
    from tensorboard.plugins.text.plugin_data_pb2 import TextPluginData

    content = messages().tensor(np.array([value.encode()], dtype=object))
    return _one(
        f"{tag}/text_summary", tensor=content, metadata=metadata("text", TextPluginData(version=0).SerializeToString())
    )


def audio(tag: str, sound: Any, sample_rate: int = 44100) -> Any:
    """A sound, given as amplitudes between -1 and 1, as a WAV file with one channel."""
    array = array_of(sound).squeeze()
    if array.ndim != 1:
        raise AssertionError(f"add_audio: input tensor should be 1 dimensional, but got shape {array.shape}")
    if np.abs(array).max(initial=0) > 1:
        warnings.warn("add_audio: amplitudes outside [-1, 1] are clipped to that range.", stacklevel=3)
    samples = (array.clip(-1, 1) * np.iinfo(np.int16).max).astype("<i2")
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(2)
        writer.setframerate(sample_rate)
        writer.writeframes(samples.tobytes())
    content = messages().Summary.Audio(
        sample_rate=sample_rate,
        num_channels=1,
        length_frames=len(samples),
        encoded_audio_string=file.getvalue(),
        content_type="audio/wav",
    )
    return _one(tag, audio=content)


def pr_curve(tag: str, labels: Any, predictions: Any, num_thresholds: int = THRESHOLDS, weights: Any = None) -> Any:
    """Precision and recall at thresholds evenly spaced from 0 to 1.

    Args:
        labels: the true label of each sample, as 0 and 1 or False and True.
        predictions: the predicted probability of label 1 for each sample.
        num_thresholds: the number of thresholds, at most `THRESHOLDS`.
        weights: the weight of each sample; 1 by default.
    """
    count = min(num_thresholds, THRESHOLDS)
    truth = array_of(labels).astype(np.float64).reshape(-1)
    weight = np.ones_like(truth) if weights is None else array_of(weights) * np.ones_like(truth)
    # Sample i is predicted positive at the thresholds 0 to step[i].
    step = np.floor(array_of(predictions).reshape(-1) * (count - 1)).astype(np.int64)
    inside = (step >= 0) & (step < count)
    positive, negative = (
        np.bincount(step[inside], (part * weight)[inside], minlength=count)[::-1].cumsum()[::-1]
        for part in (truth, 1 - truth)
    )
    missed, rejected = positive[0] - positive, negative[0] - negative
    tiny = 1e-7  # avoids division by zero where there are no samples
    precision = positive / np.maximum(tiny, positive + negative)
    recall = positive / np.maximum(tiny, positive + missed)
    return pr_curve_raw(tag, positive, negative, rejected, missed, precision, recall, count)


def pr_curve_raw(
    tag: str, tp: Any, fp: Any, tn: Any, fn: Any, precision: Any, recall: Any, num_thresholds: int = THRESHOLDS
) -> Any:
    """Like `pr_curve`, from the counts of true and false positives and negatives at each threshold."""
    from tensorboard.plugins.pr_curve.plugin_data_pb2 import PrCurvePluginData

    rows = np.stack([array_of(row) for row in (tp, fp, tn, fn, precision, recall)]).astype(np.float32)
    about = PrCurvePluginData(version=0, num_thresholds=min(num_thresholds, THRESHOLDS))
    return _one(tag, tensor=messages().tensor(rows), metadata=metadata("pr_curves", about.SerializeToString()))


def custom_scalars(layout: dict[str, dict[str, Sequence]]) -> Any:
    """The layout of charts that combine scalars: `{category: {chart: ["Multiline" or "Margin", tags]}}`."""
    from tensorboard.plugins.custom_scalar import layout_pb2 as pages

    def chart(title: str, kind: str, tags: list[str]) -> Any:
        if kind != "Margin":
            return pages.Chart(title=title, multiline=pages.MultilineChartContent(tag=tags))
        if len(tags) != 3:
            raise AssertionError(f"Expected 3 tags, got {len(tags)}.")
        series = pages.MarginChartContent.Series(value=tags[0], lower=tags[1], upper=tags[2])
        return pages.Chart(title=title, margin=pages.MarginChartContent(series=[series]))

    categories = [
        pages.Category(title=title, chart=[chart(name, kind, list(tags)) for name, (kind, tags) in charts.items()])
        for title, charts in layout.items()
    ]
    content = pages.Layout(category=categories).SerializeToString()
    return _one(
        "custom_scalars__config__",
        tensor=messages().tensor(np.array(content, dtype=object)),
        metadata=metadata("custom_scalars"),
    )


def mesh(tag: str, vertices: Any, colors: Any, faces: Any, config_dict: dict | None) -> Any:
    """Points in space, or triangles between them, as arrays of shape `(batch, number, 3)`."""
    from tensorboard.plugins.mesh import metadata as about
    from tensorboard.plugins.mesh.plugin_data_pb2 import MeshPluginData

    given = (
        (vertices, MeshPluginData.VERTEX),
        (faces, MeshPluginData.FACE),
        (colors, MeshPluginData.COLOR),
    )
    parts = [(array_of(part), kind) for part, kind in given if part is not None]
    components = about.get_components_bitmask([kind for _, kind in parts])
    settings = json.dumps(config_dict or {}, sort_keys=True)
    kind_of_summary = messages().Summary
    values = []
    for part, kind in parts:
        if part.ndim != 3 or part.shape[2] != 3:
            raise ValueError(f"add_mesh: expected arrays of shape (batch, number, 3), but got {part.shape}")
        description = about.create_summary_metadata(tag, None, kind, components, part.shape, None, json_config=settings)
        values.append(
            kind_of_summary.Value(
                tag=about.get_instance_name(tag, kind),
                tensor=messages().tensor(part.astype(np.float32)),
                metadata=description,
            )
        )
    return kind_of_summary(value=values)
