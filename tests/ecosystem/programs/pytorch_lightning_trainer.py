"""pytorch_lightning, by its former name: a module, data, callbacks, a checkpoint that is gone on with, predictions."""

import json
import os
import sys
import tempfile
import warnings

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback, EarlyStopping, ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.simplefilter("ignore")
pl.seed_everything(0, verbose=False)
x = torch.randn(24, 4)
data = TensorDataset(x, (x[:, :1] - x[:, 1:2]).tanh())
losses = []


class Model(pl.LightningModule):
    def __init__(self, width=8, lr=0.1):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(nn.Linear(4, width), nn.GELU(), nn.Linear(width, 1))

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, index):
        loss = nn.functional.mse_loss(self(batch[0]), batch[1])
        self.log("loss", loss)
        losses.append(loss.item())
        return loss

    def validation_step(self, batch, index):
        self.log("val", nn.functional.mse_loss(self(batch[0]), batch[1]))

    def predict_step(self, batch, index):
        return self(batch[0])

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)
        return [optimizer], [{"scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5), "interval": "step"}]


class Count(Callback):
    steps = 0

    def on_train_batch_end(self, *args):
        self.steps += 1


def trainer(folder, epochs, *more):
    return pl.Trainer(
        max_epochs=epochs, accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False,
        default_root_dir=folder, gradient_clip_val=0.5, callbacks=[*more], enable_checkpointing=bool(more),
        accumulate_grad_batches=1, num_sanity_val_steps=0,
    )  # fmt: skip


folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
file, count, model = os.path.join(folder, "last.ckpt"), Count(), Model()
train, valid = DataLoader(data, batch_size=8), DataLoader(data, batch_size=12)
made = tempfile.mkdtemp()
keep = ModelCheckpoint(made, monitor="val", save_last=True, save_top_k=1)
first = trainer(made, 2, count, keep, EarlyStopping("val", patience=3))
first.fit(model, train, valid)
if not os.path.exists(file):
    first.save_checkpoint(file)
loaded = Model.load_from_checkpoint(file)
going_on = trainer(made, 3)
going_on.fit(Model(), train, valid, ckpt_path=file)
numbers = {
    "steps": [count.steps, first.global_step, going_on.global_step], "val": [first.callback_metrics["val"].item()],
    "best": [keep.best_model_score.item()], "loaded": loaded(x[:4]).flatten().tolist(),
    "hyperparameters": [loaded.hparams.width, loaded.hparams.lr],
    "rate": [going_on.optimizers[0].param_groups[0]["lr"]],
    "predicted": torch.cat(going_on.predict(loaded, valid)).flatten()[:4].tolist(),
    "validated": [going_on.validate(loaded, valid, verbose=False)[0]["val"]],
}  # fmt: skip
print(json.dumps({"losses": losses, "numbers": numbers}))
