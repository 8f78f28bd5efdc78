"""torcheval: metrics of a small classifier, merged, saved and loaded."""

import json
import os
import sys
import tempfile
import warnings

import torch
from shared.training import some, three_steps
from torch import nn
from torcheval import metrics
from torcheval.metrics import functional as F
from torcheval.metrics.toolkit import clone_metric, get_synced_metric, reset_metrics

warnings.simplefilter("ignore")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4))
x, y = torch.randn(32, 6), torch.arange(32) % 4
losses = three_steps(torch.optim.SGD(model.parameters(), lr=0.5), lambda: nn.functional.cross_entropy(model(x), y))
scores = model(x).detach()
binary, wanted = scores[:, 0].sigmoid(), (y == 0).long()
many = (torch.rand(32, 4) > 0.5).long()
numbers, folder = {}, sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
for name, metric, arguments in (
    ("accuracy", metrics.MulticlassAccuracy(average="macro", num_classes=4), (scores, y)),
    ("top", metrics.MulticlassAccuracy(k=2), (scores, y)),
    ("f1", metrics.MulticlassF1Score(average=None, num_classes=4), (scores, y)),
    ("precision", metrics.MulticlassPrecision(average="weighted", num_classes=4), (scores, y)),
    ("recall", metrics.MulticlassRecall(average="macro", num_classes=4), (scores, y)),
    ("confusion", metrics.MulticlassConfusionMatrix(4, normalize="true"), (scores, y)),
    ("auroc", metrics.MulticlassAUROC(num_classes=4, average=None), (scores, y)),
    ("auprc", metrics.MulticlassAUPRC(num_classes=4, average=None), (scores, y)),
    ("binary", metrics.BinaryAUROC(), (binary, wanted)),
    ("binary auprc", metrics.BinaryAUPRC(), (binary, wanted)),
    ("binary f1", metrics.BinaryF1Score(threshold=0.3), (binary, wanted)),
    ("entropy", metrics.BinaryNormalizedEntropy(), (binary.double(), wanted.double())),
    ("multilabel", metrics.MultilabelAccuracy(criteria="hamming"), (scores.sigmoid(), many)),
    ("squares", metrics.MeanSquaredError(multioutput="raw_values"), (scores, x[:, :4])),
    ("r2", metrics.R2Score(), (scores, x[:, :4])),
    ("rank", metrics.ReciprocalRank(), (scores, y)),
    ("hits", metrics.HitRate(k=2), (scores, y)),
    ("mean", metrics.Mean(), (binary,)),
    ("perplexity", metrics.Perplexity(), (scores[None], y[None])),
    ("peak", metrics.PeakSignalNoiseRatio(), (binary.view(1, 1, 4, 8), wanted.view(1, 1, 4, 8).float())),
    ("auc", metrics.AUC(), (binary.sort().values, wanted.cumsum(0).float())),
    ("windows", metrics.WindowedBinaryAUROC(max_num_samples=16), (binary, wanted)),
):
    other = clone_metric(metric)
    metric.update(*arguments)
    other.update(*arguments).merge_state([metric])
    file = os.path.join(folder, f"{name}.pt")
    if not os.path.exists(file):
        torch.save(metric.state_dict(), file)
    again = clone_metric(metric)
    reset_metrics([again])[0].load_state_dict(torch.load(file, weights_only=False))
    numbers[name] = []
    for one in (metric, other, again, get_synced_metric(metric)):
        value = one.compute()
        numbers[name] += [
            v.double().flatten().tolist() for v in (value if isinstance(value, list | tuple) else [value])
        ]
curve = F.binary_precision_recall_curve(binary, wanted)
numbers["curve"] = [part[:4].tolist() for part in curve]
text = ["the cat sat", "a dog ran off"], ["the cat sat down", "the dog ran"]
numbers["text"] = [F.word_error_rate(*text).item(), F.bleu_score(text[0], [[t] for t in text[1]], n_gram=2).item()]
numbers["some"] = some(scores)
print(json.dumps({"losses": losses, "numbers": numbers}))
