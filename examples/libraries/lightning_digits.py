"""Lightning's Trainer trains a small network on handwritten digits, on tensorgrad; the program itself is PyTorch's.

    pip install --no-deps lightning pytorch-lightning torchmetrics      (they ask for torch, which is not needed)
    pip install lightning-utilities fsspec packaging pyyaml tqdm typing-extensions scikit-learn
    python -m tensorgrad.run examples/libraries/lightning_digits.py     or: python …, under torch

It prints the accuracy on held-out digits, and loads the best checkpoint again. docs/ecosystem.md has more libraries.
"""

import sys
import tempfile
import warnings

try:
    import lightning as L
    import torch
    import torchmetrics
    from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
    from sklearn.datasets import load_digits
except ImportError as error:
    sys.exit(f"{error}: this example needs lightning, torchmetrics and scikit-learn (its first lines say how)")

from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

warnings.filterwarnings("ignore", message=".*num_workers.*")


class Digits(L.LightningModule):
    """A small convolutional network, its loss, its metrics and its optimizer."""

    def __init__(self, width: int = 16, lr: float = 3e-3):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(32 * width, 10),
        )  # fmt: skip
        self.accuracy = torchmetrics.Accuracy("multiclass", num_classes=10)

    def forward(self, images):
        return self.net(images)

    def training_step(self, batch, index):
        images, labels = batch
        loss = nn.functional.cross_entropy(self(images), labels)
        self.log("loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, index):
        images, labels = batch
        self.accuracy(self(images), labels)
        self.log("accuracy", self.accuracy, prog_bar=True)

    test_step = validation_step

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), self.hparams.lr)
        return [optimizer], [torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.trainer.max_epochs)]


def main() -> None:
    L.seed_everything(0)
    pixels, labels = load_digits(return_X_y=True)
    data = TensorDataset(torch.tensor(pixels).float().reshape(-1, 1, 8, 8) / 16, torch.tensor(labels))
    train, valid = random_split(data, [0.8, 0.2])
    with tempfile.TemporaryDirectory() as folder:
        best = ModelCheckpoint(folder, monitor="accuracy", mode="max")
        trainer = L.Trainer(
            max_epochs=5, accelerator="cpu", logger=False, callbacks=[best, EarlyStopping("accuracy", mode="max")],
        )  # fmt: skip
        trainer.fit(Digits(), DataLoader(train, 32, shuffle=True), DataLoader(valid, 64))
        again = Digits.load_from_checkpoint(best.best_model_path)
        (result,) = trainer.test(again, DataLoader(valid, 64), verbose=False)
    print(f"accuracy on held-out digits {result['accuracy']:.3f}")


if __name__ == "__main__":
    main()
