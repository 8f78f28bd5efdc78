"""Ignite: a trainer and an evaluator with metrics, handlers, checkpoints and a schedule."""

import json
import os
import sys
import tempfile
import warnings

import torch
from ignite import metrics
from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
from ignite.handlers import Checkpoint, DiskSaver, EarlyStopping, PiecewiseLinear, TerminateOnNan
from ignite.metrics.regression import R2Score
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.simplefilter("ignore")
torch.manual_seed(0)
data = TensorDataset(torch.randn(24, 1, 6, 6), torch.randint(3, (24,)))
model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
trainer = create_supervised_trainer(model, optimizer, nn.CrossEntropyLoss())
measured = {
    "accuracy": metrics.Accuracy(), "loss": metrics.Loss(nn.CrossEntropyLoss()), "confusion": metrics.ConfusionMatrix(3),
    "precision": metrics.Precision(), "recall": metrics.Recall(average=True), "top2": metrics.TopKCategoricalAccuracy(2),
    "f1": metrics.Fbeta(1.0), "iou": metrics.mIoU(metrics.ConfusionMatrix(3)),
}  # fmt: skip
evaluator = create_supervised_evaluator(model, metrics=measured)
metrics.RunningAverage(output_transform=lambda loss: loss).attach(trainer, "average")
schedule = PiecewiseLinear(optimizer, "lr", [(0, 0.1), (4, 0.01)])
trainer.add_event_handler(Events.ITERATION_STARTED, schedule)
trainer.add_event_handler(Events.ITERATION_COMPLETED, TerminateOnNan())
losses, rates, seen = [], [], []


@trainer.on(Events.ITERATION_COMPLETED)
def note(engine):
    losses.append(engine.state.output)
    rates.append(optimizer.param_groups[0]["lr"])


@trainer.on(Events.EPOCH_COMPLETED(every=1))
def evaluate(engine):
    state = evaluator.run(DataLoader(data, 6))
    seen.append([[k, v.tolist() if isinstance(v, torch.Tensor) else v] for k, v in sorted(state.metrics.items())])


evaluator.add_event_handler(Events.COMPLETED, EarlyStopping(3, lambda e: -e.state.metrics["loss"], trainer))
folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
saved = {"model": model, "optimizer": optimizer, "trainer": trainer}
own = tempfile.mkdtemp()
checkpoint = Checkpoint(saved, DiskSaver(own, require_empty=False), n_saved=1, filename_pattern="last.pt")
trainer.add_event_handler(Events.EPOCH_COMPLETED, checkpoint)
trainer.run(DataLoader(data, 6, shuffle=True), max_epochs=2)
file = os.path.join(folder, "last.pt")
if not os.path.exists(file):
    os.makedirs(folder, exist_ok=True)
    os.replace(os.path.join(own, "last.pt"), file)
images = data.tensors[0]
with torch.no_grad():
    before = model(images)
    for parameter in model.parameters():
        parameter.zero_()
Checkpoint.load_objects(saved, torch.load(file))
torch.testing.assert_close(model(images), before, rtol=1e-3, atol=1e-3)
score = R2Score()
score.update((torch.arange(4.0), torch.tensor([0.0, 1.0, 2.5, 3.0])))
numbers = {"rates": rates, "evaluated": seen, "average": trainer.state.metrics["average"], "r2": score.compute(),
           "iterations": trainer.state.iteration}  # fmt: skip
print(json.dumps({"losses": losses, "numbers": numbers}))
