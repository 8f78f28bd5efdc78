"""Lightning's Trainer: fit, validate, test, predict; callbacks, checkpoints, loggers, accumulated and clipped gradients."""

import json
import os
import sys
import tempfile
import warnings
from pathlib import Path

import lightning as L
import torch
from lightning.pytorch import callbacks, loggers
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.simplefilter("ignore")


class Data(L.LightningDataModule):
    def setup(self, stage):
        generator = torch.Generator().manual_seed(1)
        images, labels = torch.randn(48, 8, generator=generator), torch.randint(3, (48,), generator=generator)
        self.parts = [TensorDataset(images[i : i + 16], labels[i : i + 16]) for i in (0, 16, 32)]

    def train_dataloader(self):
        return DataLoader(self.parts[0], batch_size=8, shuffle=True)

    def val_dataloader(self):
        return DataLoader(self.parts[1], batch_size=8)

    def test_dataloader(self):
        return DataLoader(self.parts[2], batch_size=8)

    predict_dataloader = test_dataloader


class Classifier(L.LightningModule):
    def __init__(self, hidden=16, lr=0.01):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(
            nn.Linear(8, hidden, bias=False), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Dropout(0.1), nn.Linear(hidden, 3)
        )
        self.losses = []

    def forward(self, images):
        return self.net(images)

    def _loss(self, batch, name):
        images, labels = batch
        loss = nn.functional.cross_entropy(self(images), labels)
        self.log(name, loss, on_step=name == "train", on_epoch=True, prog_bar=True)
        return loss

    def training_step(self, batch, index):
        loss = self._loss(batch, "train")
        self.losses.append(loss.item())
        return loss

    def validation_step(self, batch, index):
        self._loss(batch, "val")

    def test_step(self, batch, index):
        self._loss(batch, "test")

    def predict_step(self, batch, index):
        return self(batch[0]).softmax(-1)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), self.hparams.lr)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class Count(callbacks.Callback):
    def __init__(self):
        self.seen = []

    def on_train_epoch_end(self, trainer, module):
        self.seen.append(["train", trainer.current_epoch, trainer.global_step])

    def on_validation_end(self, trainer, module):
        self.seen.append(["val", trainer.current_epoch, trainer.global_step])


def trainer(folder, *more, **options):
    return L.Trainer(
        accelerator="cpu", devices=1, default_root_dir=folder, enable_progress_bar=False, enable_model_summary=True,
        callbacks=list(more), log_every_n_steps=1, deterministic=True, **options,
    )  # fmt: skip


folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
L.seed_everything(0, verbose=False)
model, data, count = Classifier(), Data(), Count()
checkpoint = callbacks.ModelCheckpoint(
    os.path.join(folder, "checkpoints"), "{epoch}-{step}", monitor="val", save_top_k=2
)
log = loggers.CSVLogger(folder, "log")
extra = [
    callbacks.LearningRateMonitor("step"),
    callbacks.EarlyStopping("val", patience=5),
    callbacks.GradientAccumulationScheduler({0: 1, 2: 2}),
]
fit = trainer(
    folder, count, checkpoint, *extra, max_epochs=3, logger=log, gradient_clip_val=0.5, num_sanity_val_steps=1
)
fit.fit(model, data)
numbers = {
    "callback": count.seen,
    "logged": sorted([k, float(v)] for k, v in fit.logged_metrics.items()),
    "validate": [sorted(row.items()) for row in fit.validate(model, data, verbose=False)],
    "test": [sorted(row.items()) for row in fit.test(model, data, verbose=False)],
    "predict": [p.tolist() for p in fit.predict(model, data)],
    "best": [os.path.basename(checkpoint.best_model_path), float(checkpoint.best_model_score)],
    "steps": fit.estimated_stepping_batches,
    "rows": len(Path(log.log_dir, "metrics.csv").read_text().splitlines()),
}
file = os.path.join(folder, "exchanged.ckpt")
if not os.path.exists(file):
    fit.save_checkpoint(file)
again = Classifier.load_from_checkpoint(file, lr=0.02)
numbers["hyperparameters"] = sorted([k, v] for k, v in again.hparams.items())
with torch.no_grad():
    numbers["loaded"] = again.eval()(torch.ones(1, 8)).tolist()
resumed = Classifier()
more = trainer(folder, max_epochs=4, logger=False, enable_checkpointing=False)
L.seed_everything(1, verbose=False)
more.fit(resumed, data, ckpt_path=file)
numbers["resumed"] = [more.global_step, *resumed.losses]
print(json.dumps({"losses": model.losses, "numbers": numbers}))
