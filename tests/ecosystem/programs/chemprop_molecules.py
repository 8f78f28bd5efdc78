"""chemprop: messages along the bonds of molecules and between their atoms; regression, classes, uncertainty, Lightning."""

import json
import os
import sys
import tempfile
import warnings

import lightning as L
import numpy as np
import torch
from chemprop import data, featurizers, models, nn

warnings.simplefilter("ignore")
SMILES = [
    "CCO",
    "c1ccccc1",
    "CC(=O)O",
    "CCN(CC)CC",
    "C1CCCCC1O",
    "CC(C)C#N",
    "O=C(N)c1ccccc1",
    "CCS",
    "OCC(F)F",
    "CNC=O",
]


def loader(kind):
    made = np.array([[len(s) / 10, s.count("C") / 5] for s in SMILES])
    classes = (made > made.mean(0)).astype(float)
    y = classes if kind == "classes" else made
    points = [data.MoleculeDatapoint.from_smi(s, row) for s, row in zip(SMILES, y)]
    featurizer = featurizers.SimpleMoleculeMolGraphFeaturizer()
    dataset = data.MoleculeDataset(points, featurizer)
    scaler = dataset.normalize_targets() if kind != "classes" else None
    return data.build_dataloader(dataset, batch_size=4, shuffle=False), scaler


def model(kind):
    torch.manual_seed(0)
    loaded, scaler = loader(kind)
    transform = None if scaler is None else nn.UnscaleTransform.from_standard_scaler(scaler)
    messages = (nn.AtomMessagePassing if kind == "classes" else nn.BondMessagePassing)(d_h=24, depth=3)
    aggregation = {"regression": nn.MeanAggregation, "classes": nn.NormAggregation}.get(kind, nn.SumAggregation)()
    predictor = {
        "regression": nn.RegressionFFN, "classes": nn.BinaryClassificationFFN, "mve": nn.MveFFN,
        "evidential": nn.EvidentialFFN,
    }[kind](n_tasks=2, input_dim=24, hidden_dim=16, output_transform=transform)  # fmt: skip
    return loaded, models.MPNN(messages, aggregation, predictor, batch_norm=kind != "mve", warmup_epochs=1)


class Remember(L.Callback):
    def __init__(self):
        self.losses = []

    def on_train_batch_end(self, trainer, module, outputs, batch, index):
        self.losses.append(outputs["loss"].item())


folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
losses, numbers = [], {}
for kind in ("regression", "classes", "mve", "evidential"):
    loaded, net = model(kind)
    remember = Remember()
    trainer = L.Trainer(
        accelerator="cpu", devices=1, max_epochs=1, logger=False, enable_progress_bar=False, callbacks=[remember],
        enable_model_summary=False, enable_checkpointing=False,
    )  # fmt: skip
    trainer.fit(net, loaded, loaded)
    losses += remember.losses
    measured = sorted([name, float(value)] for name, value in trainer.callback_metrics.items())
    predicted = torch.cat(trainer.predict(net, loaded))
    file = os.path.join(folder, f"{kind}.pt")
    if not os.path.exists(file):
        models.save_model(file, net)
    again = models.load_model(file).eval()
    molecules = next(iter(loaded)).bmg
    with torch.no_grad():
        fingerprint = again.fingerprint(molecules)
        again_predicted = again(molecules)
    torch.testing.assert_close(again_predicted, predicted[:4], rtol=1e-3, atol=1e-4)
    numbers[kind] = [measured, predicted.flatten().tolist(), fingerprint.norm().item()]
print(json.dumps({"losses": losses, "numbers": numbers}))
