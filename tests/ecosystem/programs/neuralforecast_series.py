"""neuralforecast: models of time series, trained together from a data frame; forecasts, and files."""

import json
import logging
import os
import sys
import tempfile
import warnings

import numpy as np
import pandas as pd
import torch
from neuralforecast import NeuralForecast
from neuralforecast.losses.pytorch import MAE, DistributionLoss, MQLoss
from neuralforecast.models import GRU, LSTM, MLP, NBEATS, NHITS, TCN, TFT, DLinear, PatchTST, TiDE, iTransformer

warnings.simplefilter("ignore")
logging.disable(logging.WARNING)

noise = np.random.default_rng(0)
rows = [
    pd.DataFrame({
        "unique_id": str(i), "ds": pd.date_range("2024-01-01", periods=72, freq="D"),
        "y": np.sin(np.arange(72) / (3 + i)) * 5 + noise.random(72) + i,
    })
    for i in range(4)
]  # fmt: skip
frame = pd.concat(rows)
common = dict(
    h=6, input_size=12, max_steps=3, batch_size=4, windows_batch_size=8, random_seed=1, accelerator="cpu", devices=1,
    optimizer=torch.optim.Adam, optimizer_kwargs={"eps": 1e-4},
    enable_progress_bar=False, enable_model_summary=False, logger=False, enable_checkpointing=False,
)  # fmt: skip


def models():
    return [
        MLP(hidden_size=8, num_layers=1, loss=MAE(), scaler_type="robust", **common),
        NBEATS(mlp_units=[[8, 8]] * 3, **common),
        NHITS(mlp_units=[[8, 8]] * 3, loss=MQLoss(level=[80]), **common),
        LSTM(encoder_hidden_size=8, decoder_hidden_size=8, loss=DistributionLoss("Normal", level=[80]), **common),
        GRU(encoder_hidden_size=8, decoder_hidden_size=8, **common),
        TCN(encoder_hidden_size=8, decoder_hidden_size=8, dilations=[1, 2], **common),
        TFT(hidden_size=8, n_head=2, **common),
        DLinear(moving_avg_window=5, **common),
        PatchTST(encoder_layers=1, n_heads=2, hidden_size=8, linear_hidden_size=16, patch_len=4, stride=2, **common),
        TiDE(hidden_size=8, decoder_output_dim=4, temporal_decoder_dim=8, **common),
        iTransformer(n_series=4, hidden_size=8, n_heads=2, e_layers=1, d_ff=16, **common),
    ]


folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
os.chdir(tempfile.mkdtemp())
forecaster = NeuralForecast(models(), freq="D")
forecaster.fit(frame, val_size=6)
losses = [float(loss) for model in forecaster.models for _, loss in model.train_trajectories]
place = os.path.join(folder, "models")
if not os.path.exists(place):
    forecaster.save(place, save_dataset=True)
forecast = NeuralForecast.load(place).predict()
numbers = {name: forecast[name].tolist() for name in forecast.columns if name not in ("unique_id", "ds")}
print(json.dumps({"losses": losses, "numbers": numbers}))
