"""Models that are not networks (the domain ai.onnx.ml), of numbers; and words as numbers."""

from __future__ import annotations

import math
from typing import Any

import tensorgrad as torch
from tensorgrad.onnx.operators.table import CLASSIC, bounded, operator


@operator(CLASSIC + "ArrayFeatureExtractor")
def array_feature_extractor(x: Any, indices: Any) -> Any:
    made = x[..., indices.reshape(-1)]
    return made[None] if x.dim() == 1 else made


@operator(CLASSIC + "Binarizer")
def binarizer(x: Any, threshold: float = 0.0) -> Any:
    return (x > threshold).to(x.dtype)


@operator(CLASSIC + "Scaler")
def scaler(x: Any, offset: Any, scale: Any) -> Any:
    return (x.float() - torch.tensor(list(offset))) * torch.tensor(list(scale))


@operator(CLASSIC + "Normalizer")
def normalizer(x: Any, norm: str = "MAX") -> Any:
    x = x.float()
    if norm == "MAX":
        size = x.amax(-1, keepdim=True)
    else:
        size = torch.linalg.vector_norm(x, {"L1": 1, "L2": 2}[norm], -1, keepdim=True)
    return torch.where(size == 0, x, x / size)


@operator(CLASSIC + "Imputer")
def imputer(
    x: Any, imputed_value_floats: Any = None, imputed_value_int64s: Any = None, replaced_value_float: float = 0.0,
    replaced_value_int64: int = 0,
) -> Any:  # fmt: skip
    real = x.is_floating_point()
    values = torch.tensor(list(imputed_value_floats if real else imputed_value_int64s), dtype=x.dtype)
    replaced = replaced_value_float if real else replaced_value_int64
    return torch.where(torch.isnan(x) if real and math.isnan(replaced) else x == replaced, values, x)


@operator(CLASSIC + "FeatureVectorizer")
def feature_vectorizer(*parts: Any, inputdimensions: Any) -> Any:
    return torch.cat([part.float()[:, :n] for part, n in zip(parts, inputdimensions, strict=True)], 1)


def _finished(scores: Any, post_transform: str) -> Any:
    if post_transform == "NONE":
        return scores
    if post_transform == "SOFTMAX":
        return scores.softmax(-1)
    if post_transform == "LOGISTIC":
        return torch.sigmoid(scores)
    raise NotImplementedError(f"onnx: results by {post_transform}")


@operator(CLASSIC + "LinearRegressor")
def linear_regressor(
    x: Any, coefficients: Any, intercepts: Any = None, targets: int = 1, post_transform: str = "NONE"
) -> Any:
    made = x.float() @ torch.tensor(list(coefficients)).reshape(targets, -1).t()
    return _finished(made if intercepts is None else made + torch.tensor(list(intercepts)), post_transform)


@operator(CLASSIC + "LinearClassifier", several=True)
def linear_classifier(
    x: Any, coefficients: Any, classlabels_ints: Any, intercepts: Any = None, multi_class: int = 0,
    post_transform: str = "NONE", count: int = 1,
) -> Any:  # fmt: skip
    rows = len(intercepts) if intercepts is not None else len(classlabels_ints)
    scores = x.float() @ torch.tensor(list(coefficients)).reshape(rows, -1).t()
    scores = scores if intercepts is None else scores + torch.tensor(list(intercepts))
    labels = torch.tensor(list(classlabels_ints))
    if rows == 1 and len(classlabels_ints) == 2:
        chosen = (scores[:, 0] > 0).long()
        other = 1 - torch.sigmoid(scores) if post_transform == "LOGISTIC" else -scores
        finished = torch.cat([other, _finished(scores, post_transform)], 1)
    else:
        chosen, finished = scores.argmax(-1), _finished(scores, post_transform)
    return (labels[chosen], finished)[:count]


@operator(CLASSIC + "LabelEncoder")
def label_encoder(
    x: Any, keys_int64s: Any = None, keys_floats: Any = None, values_int64s: Any = None, values_floats: Any = None,
    default_int64: int = -1, default_float: float = -0.0, keys_tensor: Any = None, values_tensor: Any = None,
    default_tensor: Any = None,
) -> Any:  # fmt: skip
    whole = values_int64s is not None
    if keys_tensor is not None:
        keys, values, default = keys_tensor, values_tensor, default_tensor.reshape(())
    else:
        keys = torch.tensor(list(keys_int64s if keys_int64s is not None else keys_floats))
        values = torch.tensor(list(values_int64s if whole else values_floats))
        default = torch.tensor(default_int64 if whole else default_float)
    same = (x.unsqueeze(-1) == keys) | ((x.unsqueeze(-1) != x.unsqueeze(-1)) & (keys != keys))  # NaN is a key, too
    return torch.where(same.any(-1), values[same.int().argmax(-1)], default.to(values.dtype))


_COMPARED = (torch.le, torch.lt, torch.ge, torch.gt, torch.eq, torch.ne)
_SUMS = ("mean", "sum", "amin", "amax")


@operator(CLASSIC + "TreeEnsemble")
def tree_ensemble(
    x: Any, nodes_splits: Any, nodes_featureids: Any, nodes_modes: Any, nodes_truenodeids: Any, nodes_falsenodeids: Any,
    nodes_trueleafs: Any, nodes_falseleafs: Any, leaf_targetids: Any, leaf_weights: Any, tree_roots: Any,
    post_transform: int = 0, aggregate_function: int = 1, nodes_hitrates: Any = None,
    nodes_missing_value_tracks_true: Any = None, membership_values: Any = None, n_targets: int = 1,
) -> Any:  # fmt: skip
    """All rows go down a tree together, one level at a time."""
    if post_transform:
        raise NotImplementedError(f"onnx: TreeEnsemble with the results' function {post_transform}")
    modes, splits = nodes_modes.long(), nodes_splits
    count = modes.numel()
    features, tracks = torch.tensor(list(nodes_featureids)), nodes_missing_value_tracks_true
    missing = torch.tensor(list(tracks)).bool() if tracks is not None else torch.zeros(count, dtype=torch.bool)
    members = _members(membership_values, modes)
    next_ = torch.tensor([list(nodes_falsenodeids), list(nodes_truenodeids)])
    leaf = torch.tensor([list(nodes_falseleafs), list(nodes_trueleafs)]).bool()
    targets = torch.tensor(list(leaf_targetids))
    rows, made = torch.arange(x.shape[0]), []
    for root in tree_roots:
        at, done = torch.full((x.shape[0],), root), torch.zeros(x.shape[0], dtype=torch.bool)
        for _ in range(count + 1):
            if bool(done.all()):
                break
            node = torch.where(done, torch.full_like(at, root), at)
            value, split = x[rows, features[node]], splits[node]
            yes = torch.zeros_like(done)
            for mode, compare in enumerate(_COMPARED):
                yes = torch.where(modes[node] == mode, compare(value, split), yes)
            for member, values in members:
                yes = torch.where(node == member, (value[:, None] == values).any(-1), yes)
            yes = (yes | (missing[node] & torch.isnan(value))).long()
            at, done = torch.where(done, at, next_[yes, node]), done | leaf[yes, node]
        else:
            raise ValueError("onnx: a tree of a TreeEnsemble has a circle")
        made.append(at)
    found = torch.stack(made, 1)
    weights, where = leaf_weights[found], targets[found]
    bounded([x.shape[0], n_targets])
    way = _SUMS[aggregate_function]
    start = {"amin": torch.finfo(x.dtype).max, "amax": torch.finfo(x.dtype).min}.get(way, 0.0)
    result = torch.full((x.shape[0], n_targets), start, dtype=x.dtype)
    if way in ("amin", "amax"):
        return result.scatter_reduce(1, where, weights.to(x.dtype), way)
    total = result.scatter_add(1, where, weights.to(x.dtype))
    return total / len(tree_roots) if way == "mean" else total


def _members(values: Any, modes: Any) -> list[tuple[int, Any]]:
    """The nodes that ask whether a value is one of several, and these: NaN ends those of a node."""
    nodes = (modes == len(_COMPARED)).nonzero()[:, 0].tolist()
    if not nodes:
        return []
    ends = torch.isnan(values).nonzero()[:, 0].tolist()
    if len(ends) != len(nodes):
        raise ValueError(f"onnx: TreeEnsemble with {len(nodes)} sets, of which {len(ends)} are given")
    starts = [0, *(end + 1 for end in ends)]
    return [(node, values[start:end]) for node, start, end in zip(nodes, starts, ends, strict=False)]


@operator("TfIdfVectorizer")
def tfidf_vectorizer(
    x: Any, max_gram_length: int, max_skip_count: int, min_gram_length: int, mode: str, ngram_counts: Any,
    ngram_indexes: Any, pool_int64s: Any, weights: Any = None,
) -> Any:  # fmt: skip
    grams: dict[tuple, int] = {}  # a row of numbers -> its place in the result
    number = 0
    ends = [*ngram_counts[1:], len(pool_int64s)]
    for size, (start, end) in enumerate(zip(ngram_counts, ends, strict=True), 1):
        for at in range(start, end - size + 1, size):
            if min_gram_length <= size <= max_gram_length:
                grams[tuple(pool_int64s[at : at + size])] = ngram_indexes[number]
            number += 1
    (columns,) = bounded([max(ngram_indexes) + 1])
    found = []
    for row in x.reshape(-1, x.shape[-1]).tolist():
        counts = [0.0] * columns
        for size in range(min_gram_length, max_gram_length + 1):
            for step in range(1, (max_skip_count if size > 1 else 0) + 2):
                for at in range(len(row) - (size - 1) * step):
                    place = grams.get(tuple(row[at : at + (size - 1) * step + 1 : step]))
                    if place is not None:
                        counts[place] += 1
        found.append(counts)
    made = torch.tensor(found).reshape(*x.shape[:-1], columns)
    if mode != "TF":
        made = (made > 0).float() if mode == "IDF" else made
        made = made if weights is None else made * torch.tensor(list(weights))
    return made
