"""Networks as scikit-learn estimators by skorch: fit, search, a pipeline, saved and loaded."""

import json
import os
import sys
import tempfile

import numpy as np
import torch
from skorch import NeuralNetClassifier, NeuralNetRegressor
from skorch.callbacks import EpochScoring, LRScheduler
from skorch.dataset import ValidSplit
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn


class Network(nn.Module):
    def __init__(self, hidden=8, out=3):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(5, hidden), nn.ReLU(), nn.Dropout(0.2), nn.Linear(hidden, out))

    def forward(self, X):
        return self.layers(X)


random = np.random.default_rng(0)
x, y = random.normal(size=(60, 5)).astype("float32"), np.arange(60) % 3
torch.manual_seed(0)
net = NeuralNetClassifier(
    Network, criterion=nn.CrossEntropyLoss, max_epochs=3, lr=0.1, batch_size=16, verbose=0, train_split=ValidSplit(5, stratified=True),
    callbacks=[("auc", EpochScoring("accuracy", name="train_acc", on_train=True)), LRScheduler(policy="StepLR", step_size=1)],
)  # fmt: skip
net.fit(x, y)
losses = list(net.history[:, "train_loss"]) + list(net.history[:, "valid_loss"])
folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
file = os.path.join(folder, "net.pt")
if not os.path.exists(file):
    net.save_params(f_params=file)
again = NeuralNetClassifier(Network, criterion=nn.CrossEntropyLoss).initialize()
again.load_params(f_params=file)
assert np.allclose(again.predict_proba(x), net.predict_proba(x))
torch.manual_seed(1)
search = GridSearchCV(net, {"module__hidden": [4, 8], "lr": [0.05, 0.1]}, cv=2, refit=False, scoring="neg_log_loss")
search.fit(x, y)
torch.manual_seed(2)
regressor = NeuralNetRegressor(Network, module__out=1, max_epochs=3, lr=0.05, verbose=0, train_split=None)
pipeline = Pipeline([("scale", StandardScaler()), ("net", regressor)]).fit(x, x[:, :1])
numbers = {
    "probabilities": again.predict_proba(x[:3]).tolist(), "search": search.cv_results_["mean_test_score"].tolist(),
    "regression": pipeline.predict(x[:3]).flatten().tolist(),
}  # fmt: skip
print(json.dumps({"losses": list(map(float, losses)), "numbers": numbers}))
