"""gluonts: forecasts of time series by estimators that Lightning trains."""

import json
import os
import sys
import tempfile
import warnings
from pathlib import Path

import lightning.pytorch as pl
import numpy as np
from gluonts.dataset.common import ListDataset
from gluonts.torch.distributions import NormalOutput, StudentTOutput
from gluonts.torch.model.d_linear import DLinearEstimator
from gluonts.torch.model.deepar import DeepAREstimator
from gluonts.torch.model.patch_tst import PatchTSTEstimator
from gluonts.torch.model.predictor import PyTorchPredictor
from gluonts.torch.model.simple_feedforward import SimpleFeedForwardEstimator
from gluonts.torch.model.tft import TemporalFusionTransformerEstimator

warnings.simplefilter("ignore")

noise = np.random.default_rng(0)
data = ListDataset(
    [
        {
            "start": "2024-01-01 00:00",
            "target": np.abs(np.sin(np.arange(120) / (3 + i)) * 5 + noise.random(120)).round(3),
        }
        for i in range(4)
    ],
    freq="h",
)


class Remember(pl.Callback):
    def __init__(self):
        self.losses = []

    def on_train_batch_end(self, trainer, module, outputs, batch, index):
        self.losses.append(outputs["loss"].item())


remember = Remember()
options = dict(
    batch_size=4, num_batches_per_epoch=3,
    trainer_kwargs=dict(
        max_epochs=1, accelerator="cpu", enable_progress_bar=False, enable_model_summary=False, logger=False,
        callbacks=[remember],
    ),
)  # fmt: skip
WAYS = {
    "feedforward": lambda: SimpleFeedForwardEstimator(
        prediction_length=6, context_length=12, hidden_dimensions=[8], distr_output=NormalOutput(), **options
    ),
    "deepar": lambda: DeepAREstimator(
        freq="h", prediction_length=6, context_length=12, num_layers=1, hidden_size=8, lags_seq=[1, 2, 24],
        distr_output=StudentTOutput(), num_parallel_samples=20, **options,
    ),
    "linear": lambda: DLinearEstimator(prediction_length=6, context_length=12, hidden_dimension=8, kernel_size=5, **options),
    "patches": lambda: PatchTSTEstimator(
        prediction_length=6, context_length=12, patch_len=4, stride=2, d_model=8, nhead=2, dim_feedforward=16,
        num_encoder_layers=1, **options,
    ),
    "fusion": lambda: TemporalFusionTransformerEstimator(
        freq="h", prediction_length=6, context_length=12, hidden_dim=8, variable_dim=8, num_heads=2, **options
    ),
}  # fmt: skip
folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
os.chdir(tempfile.mkdtemp())
numbers = {}
for name, made in WAYS.items():
    pl.seed_everything(0, verbose=False)
    predictor = made().train(data)
    place = Path(folder, name)
    if not place.exists():
        place.mkdir()
        predictor.serialize(place)
    again = PyTorchPredictor.deserialize(place, device="cpu")
    pl.seed_everything(1, verbose=False)
    forecast = next(iter(again.predict(data)))
    numbers[name] = [forecast.mean.tolist(), float(np.abs(forecast.quantile(0.9)).sum())]
print(json.dumps({"losses": remember.losses, "numbers": numbers}))
