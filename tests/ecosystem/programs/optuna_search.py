"""optuna: searches for the learning rate and the width of a network, with pruning, and keeps the weights of the best."""

import json
import os
import sys
import tempfile

import optuna
import torch
from shared.training import three_steps
from torch import nn

optuna.logging.set_verbosity(optuna.logging.WARNING)
torch.manual_seed(0)
x = torch.randn(64, 6)
y = (x[:, :2].sum(1) > 0).long()
folder, losses = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(), []


def objective(trial):
    torch.manual_seed(trial.number)
    rate = trial.suggest_float("rate", 1e-3, 1.0, log=True)
    width = trial.suggest_int("width", 4, 16, step=4)
    kind = trial.suggest_categorical("kind", ["SGD", "Adam"])
    model = nn.Sequential(nn.Linear(6, width), nn.Tanh(), nn.Linear(width, 2))
    optimizer = getattr(torch.optim, kind)(model.parameters(), lr=rate)
    for epoch in range(4):
        its = three_steps(optimizer, lambda: nn.functional.cross_entropy(model(x), y))
        trial.report(its[-1], epoch)
        if trial.should_prune():
            raise optuna.TrialPruned
    losses.append(its[-1])
    torch.save(model.state_dict(), os.path.join(folder, f"trial{trial.number}.pt"))
    return its[-1]


study = optuna.create_study(
    sampler=optuna.samplers.TPESampler(seed=0, n_startup_trials=5),
    pruner=optuna.pruners.MedianPruner(n_startup_trials=4),
)
study.optimize(objective, n_trials=16)
best = torch.load(os.path.join(folder, f"trial{study.best_trial.number}.pt"))
numbers = {
    "best": [study.best_value, study.best_params["rate"], study.best_params["width"], study.best_params["kind"]],
    "states": [trial.state.name for trial in study.trials], "bias": best["2.bias"].tolist(),
}  # fmt: skip
print(json.dumps({"losses": losses, "numbers": numbers}))
