"""Skorch: a classifier in scikit-learn's pipeline, with callbacks and a grid search, saved and loaded."""

import json
import os
import sys
import tempfile

import numpy as np
import torch
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from skorch import NeuralNetClassifier, NeuralNetRegressor
from skorch.callbacks import EpochScoring, GradientNormClipping, LRScheduler
from skorch.dataset import ValidSplit
from torch import nn

random = np.random.RandomState(0)
x, y = random.randn(60, 6).astype("float32"), random.randint(0, 3, 60)


class Net(nn.Module):
    def __init__(self, hidden=8):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, hidden), nn.ReLU(), nn.Dropout(0.2), nn.Linear(hidden, 3))

    def forward(self, x):
        return self.layers(x)


def classifier(**options):
    torch.manual_seed(0)
    return NeuralNetClassifier(
        Net, criterion=nn.CrossEntropyLoss, max_epochs=3, lr=0.1, verbose=0, batch_size=16, optimizer__momentum=0.9,
        train_split=ValidSplit(3, stratified=True),
        callbacks=[
            EpochScoring("f1_macro", lower_is_better=False, name="f1"),
            LRScheduler("StepLR", step_size=1, gamma=0.5), GradientNormClipping(1.0),
        ],
        **options,
    )  # fmt: skip


net = classifier().fit(x, y)
losses = net.history[:, "train_loss"]
numbers = {
    "valid": net.history[:, "valid_loss"],
    "f1": net.history[:, "f1"],
    "probabilities": net.predict_proba(x[:4]).tolist(),
}
folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
names = {f"f_{part}": os.path.join(folder, f"{part}.pt") for part in ("params", "optimizer")}
if not all(map(os.path.exists, names.values())):
    net.save_params(**names)
again = classifier().initialize()
again.load_params(**names)
np.testing.assert_allclose(again.predict_proba(x), net.predict_proba(x), rtol=1e-3, atol=1e-3)
pipeline = make_pipeline(StandardScaler(), classifier())
numbers["pipeline"] = pipeline.fit(x, y).predict_proba(x[:4]).tolist()
torch.manual_seed(1)
search = GridSearchCV(classifier(), {"module__hidden": [4, 8]}, cv=2, scoring="accuracy", refit=False).fit(x, y)
numbers["search"] = search.cv_results_["mean_test_score"].tolist()
torch.manual_seed(2)
line = NeuralNetRegressor(nn.Linear(6, 1), max_epochs=3, lr=0.05, verbose=0, train_split=None)
line.fit(x, x.sum(1, keepdims=True))
numbers["regressor"] = line.history[:, "train_loss"]
print(json.dumps({"losses": losses, "numbers": numbers}))
