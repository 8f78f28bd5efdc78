"""Embeddings learned with pytorch-metric-learning: losses, miners and distances."""

import json
import os
import sys
import tempfile

import torch
from pytorch_metric_learning import distances, miners, reducers
from pytorch_metric_learning import losses as objectives
from torch import nn

torch.manual_seed(0)
x, y = torch.randn(16, 6), torch.arange(16) % 4
choices = {
    "triplet": objectives.TripletMarginLoss(distance=distances.CosineSimilarity(), reducer=reducers.ThresholdReducer(low=0)),
    "contrastive": objectives.ContrastiveLoss(), "ntxent": objectives.NTXentLoss(), "arcface": objectives.ArcFaceLoss(4, 5),
    "multisimilarity": objectives.MultiSimilarityLoss(), "proxy": objectives.ProxyAnchorLoss(4, 5),
    "circle": objectives.CircleLoss(), "supcon": objectives.SupConLoss(), "angular": objectives.AngularLoss(),
    "lifted": objectives.GeneralizedLiftedStructureLoss(), "npairs": objectives.NPairsLoss(),
}  # fmt: skip
losses, numbers = [], {}
for name, objective in choices.items():
    torch.manual_seed(1)
    model = nn.Linear(6, 5)
    parameters = [*model.parameters(), *objective.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    miner = miners.MultiSimilarityMiner() if name in ("triplet", "multisimilarity") else None
    for _ in range(3):
        optimizer.zero_grad()
        out = model(x)
        loss = objective(out, y, miner(out, y)) if miner else objective(out, y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    numbers[name] = model.weight[0].tolist()
memory = objectives.CrossBatchMemory(objectives.NTXentLoss(), 5, memory_size=32)
losses += [memory(model(x), y).item(), memory(model(-x), y).item()]
folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
file = os.path.join(folder, "memory.pt")
if not os.path.exists(file):
    torch.save(memory.state_dict(), file)
memory.load_state_dict(torch.load(file))
numbers["hard"] = [part.tolist() for part in miners.BatchHardMiner()(model(x).detach(), y)]
print(json.dumps({"losses": losses, "numbers": numbers}))
