"""Metrics of torchmetrics: classes and functions, collections, states saved and loaded, gradients, three steps."""

import json
import os
import sys
import tempfile
import warnings

import torch
import torchmetrics as tm
from torch import nn
from torchmetrics import classification, clustering, image, nominal, regression, retrieval, segmentation, text

warnings.simplefilter("ignore")
torch.manual_seed(0)
scores, labels = torch.randn(40, 5).softmax(-1), torch.randint(5, (40,))
binary, truth = torch.rand(40), torch.randint(2, (40,))
many, wanted = torch.rand(20, 4), torch.randint(2, (20, 4))
x, y = torch.randn(30, 2), torch.randn(30, 2)
a, b = torch.rand(2, 3, 48, 48), torch.rand(2, 3, 48, 48)
numbers = {}


def told(value):
    if isinstance(value, dict):
        return [[k, told(v)] for k, v in sorted(value.items())]
    if isinstance(value, list | tuple):
        return [told(v) for v in value]
    return value.tolist() if isinstance(value, torch.Tensor) else value


def run(name, metric, *given):
    """In two batches, and at once."""
    half = len(given[0]) // 2
    metric.update(*(g[:half] for g in given))
    metric.update(*(g[half:] for g in given))
    numbers[name] = told(metric.compute())
    metric.reset()


CLASSES = {"task": "multiclass", "num_classes": 5}
for name in ("Accuracy", "AUROC", "AveragePrecision", "CalibrationError", "CohenKappa", "ConfusionMatrix", "F1Score",
             "HammingDistance", "HingeLoss", "JaccardIndex", "MatthewsCorrCoef", "Precision", "Recall", "ROC",
             "PrecisionRecallCurve", "Specificity", "StatScores"):  # fmt: skip
    more = {"thresholds": 7} if name in ("ROC", "PrecisionRecallCurve") else {}
    run(name, getattr(tm, name)(**CLASSES, **more), scores, labels)
    run(f"{name} binary", getattr(tm, name)(task="binary", **more), binary, truth)
    if name not in ("CalibrationError", "CohenKappa", "HingeLoss"):
        run(f"{name} multilabel", getattr(tm, name)(task="multilabel", num_labels=4, **more), many, wanted)
for name in ("MultilabelCoverageError", "MultilabelRankingAveragePrecision", "MultilabelRankingLoss"):
    run(name, getattr(classification, name)(4), many, wanted)
for name in ("ConcordanceCorrCoef", "ExplainedVariance", "KendallRankCorrCoef", "MeanAbsoluteError", "MeanSquaredError",
             "PearsonCorrCoef", "R2Score", "RelativeSquaredError", "SpearmanCorrCoef"):  # fmt: skip
    many_outputs = (
        {} if name in ("MeanAbsoluteError", "MeanSquaredError", "KendallRankCorrCoef") else {"num_outputs": 1}
    )
    many_outputs = {} if name in ("ExplainedVariance", "R2Score") else many_outputs
    run(name, getattr(regression, name)(**many_outputs), x[:, 0], y[:, 0])
run("CosineSimilarity", regression.CosineSimilarity("mean"), x, y)
for metric in (image.PeakSignalNoiseRatio(1.0), image.StructuralSimilarityIndexMeasure(data_range=1.0),
               image.UniversalImageQualityIndex(), image.SpectralAngleMapper(),
               image.ErrorRelativeGlobalDimensionlessSynthesis()):  # fmt: skip
    run(type(metric).__name__, metric, a, b)
for name in ("RetrievalMAP", "RetrievalMRR", "RetrievalNormalizedDCG", "RetrievalPrecision", "RetrievalRecall"):
    run(name, getattr(retrieval, name)(), binary, truth, torch.arange(40) // 10)
for name in ("MutualInfoScore", "NormalizedMutualInfoScore", "RandScore", "AdjustedRandScore", "VMeasureScore"):
    run(name, getattr(clustering, name)(), labels, scores.argmax(1))
run("CramersV", nominal.CramersV(5), labels, scores.argmax(1))
run("MeanIoU", segmentation.MeanIoU(3), torch.randint(2, (4, 3, 8, 8)), torch.randint(2, (4, 3, 8, 8)))
for metric in (text.BLEUScore(), text.CharErrorRate(), text.WordErrorRate(), text.EditDistance(), text.CHRFScore()):
    said, meant = ["the cat sat on mats", "a dog"], ["the cat sat on the mat", "the dog"]
    references = [[m] for m in meant] if type(metric).__name__ in ("BLEUScore", "CHRFScore") else meant
    numbers[type(metric).__name__] = told(metric(said, references))
box = lambda *c: torch.tensor([list(map(float, c))])
numbers["IntersectionOverUnion"] = told(
    tm.detection.IntersectionOverUnion()(
        [{"boxes": box(1, 1, 9, 9), "scores": torch.tensor([0.9]), "labels": torch.tensor([0])}],
        [{"boxes": box(2, 2, 9, 9), "labels": torch.tensor([0])}],
    )
)
both = tm.MetricCollection([classification.MulticlassAccuracy(5), classification.MulticlassF1Score(5)], prefix="val_")
numbers["collection"] = told(both(scores, labels))
tracker = tm.wrappers.MinMaxMetric(classification.BinaryAccuracy())
numbers["minmax"] = told(tracker(binary, truth))
torch.manual_seed(1)
numbers["bootstrap"] = told(tm.wrappers.BootStrapper(regression.MeanSquaredError(), 5, raw=True)(x[:, 0], y[:, 0]))
numbers["aggregates"] = told([m(x) for m in (tm.MeanMetric(), tm.MaxMetric(), tm.SumMetric(), tm.CatMetric())])
numbers["arithmetic"] = told((tm.MeanMetric() + 2 * tm.MaxMetric())(x))

folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
file = os.path.join(folder, "metric.pt")
metric = classification.MulticlassConfusionMatrix(5)
metric.persistent(True)
metric.update(scores, labels)
if not os.path.exists(file):
    torch.save(metric.state_dict(), file)
again = classification.MulticlassConfusionMatrix(5)
again.persistent(True)
again.load_state_dict(torch.load(file))
again._update_count = 1
torch.testing.assert_close(again.compute(), metric.compute())

# Some metrics have gradients.
torch.manual_seed(2)
model, losses = nn.Conv2d(3, 3, 3, padding=1), []
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for _ in range(3):
    optimizer.zero_grad()
    loss = 1 - tm.functional.structural_similarity_index_measure(model(a), b, data_range=1.0)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(json.dumps({"losses": losses, "numbers": numbers}))
