"""pytorch_forecasting: series in a data frame, networks that Lightning trains on them, and their forecasts."""

import json
import warnings

import lightning.pytorch as pl
import numpy as np
import pandas as pd
import torch
from pytorch_forecasting import (
    DeepAR,
    GroupNormalizer,
    NBeats,
    NHiTS,
    QuantileLoss,
    RecurrentNetwork,
    TemporalFusionTransformer,
    TimeSeriesDataSet,
)
from pytorch_forecasting.metrics import MAE, NormalDistributionLoss

warnings.simplefilter("ignore")
noise = np.random.default_rng(0)
frame = pd.concat([
    pd.DataFrame({
        "series": str(i), "time": np.arange(60), "value": np.sin(np.arange(60) / (3 + i)) * 5 + noise.random(60) + 6,
        "price": noise.random(60),
    })
    for i in range(3)
], ignore_index=True)  # fmt: skip


def dataset(**more):
    return TimeSeriesDataSet(
        frame, time_idx="time", target="value", group_ids=["series"], min_encoder_length=12, max_encoder_length=12,
        min_prediction_length=4, max_prediction_length=4, time_varying_unknown_reals=["value"], **more,
    )  # fmt: skip


class Remember(pl.Callback):
    def __init__(self):
        self.losses = []

    def on_train_batch_end(self, trainer, module, outputs, batch, index):
        self.losses.append(outputs["loss"].item())


normal = dict(target_normalizer=GroupNormalizer(groups=["series"]))
common = dict(learning_rate=0.01, optimizer="adam", log_interval=-1)
WAYS = {
    "fusion": (
        lambda: dataset(static_categoricals=["series"], time_varying_known_reals=["price"], add_relative_time_idx=True, **normal),
        lambda d: TemporalFusionTransformer.from_dataset(
            d, hidden_size=8, attention_head_size=2, hidden_continuous_size=4, output_size=3,
            loss=QuantileLoss([0.1, 0.5, 0.9]), **common,
        ),
    ),
    "deepar": (
        lambda: dataset(static_categoricals=["series"], **normal),
        lambda d: DeepAR.from_dataset(d, hidden_size=8, rnn_layers=1, loss=NormalDistributionLoss(), **common),
    ),
    "recurrent": (
        lambda: dataset(**normal),
        lambda d: RecurrentNetwork.from_dataset(d, cell_type="GRU", hidden_size=8, rnn_layers=1, loss=MAE(), **common),
    ),
    "nbeats": (lambda: dataset(**normal), lambda d: NBeats.from_dataset(d, widths=[8, 8], loss=MAE(), **common)),
    "nhits": (lambda: dataset(**normal), lambda d: NHiTS.from_dataset(d, hidden_size=8, loss=MAE(), **common)),
}  # fmt: skip
losses, numbers = [], {}
for name, (data, made) in WAYS.items():
    pl.seed_everything(0, verbose=False)
    rows = data()
    model, remember = made(rows), Remember()
    trainer = pl.Trainer(
        accelerator="cpu", devices=1, max_epochs=1, limit_train_batches=3, logger=False, enable_progress_bar=False,
        enable_model_summary=False, enable_checkpointing=False, callbacks=[remember], gradient_clip_val=0.1,
    )  # fmt: skip
    trainer.fit(model, rows.to_dataloader(train=True, batch_size=8, num_workers=0))
    losses += remember.losses
    model.eval()
    x, _ = next(iter(rows.to_dataloader(train=False, batch_size=4, num_workers=0)))
    torch.manual_seed(1)
    with torch.no_grad():
        numbers[name] = model(x)["prediction"].flatten()[:12].tolist()
print(json.dumps({"losses": losses, "numbers": numbers}))
