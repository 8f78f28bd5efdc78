"""A program for Lightning, in one process or two. Prints the losses of three epochs."""

import sys
import tempfile

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset


class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)
        with torch.no_grad():
            self.layer.weight.fill_(0.5)
            self.layer.bias.zero_()
        self.losses = []

    def training_step(self, batch, index):
        loss = torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1])
        self.log("loss", loss, sync_dist=True, on_step=False, on_epoch=True)
        return loss

    def on_train_epoch_end(self):
        self.losses.append(round(self.trainer.callback_metrics["loss"].item(), 4))

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)]


x = torch.linspace(-1, 1, 64).reshape(32, 2)
data = DataLoader(TensorDataset(x, x.sum(1, keepdim=True) * 2 + 1), batch_size=4)
devices = int(sys.argv[1])
with tempfile.TemporaryDirectory() as folder:
    trainer = lightning.Trainer(
        accelerator="cpu", devices=devices, strategy="ddp" if devices > 1 else "auto", max_epochs=3, logger=False,
        default_root_dir=folder, enable_progress_bar=False, gradient_clip_val=1.0, enable_checkpointing=devices == 1,
    )  # fmt: skip
    net = Net()
    trainer.fit(net, data)
    if trainer.is_global_zero:
        print("RESULT", torch.__package__, trainer.world_size, net.losses)
    if devices == 1:  # one more epoch, from the checkpoint
        again, net = lightning.Trainer(accelerator="cpu", max_epochs=4, logger=False, enable_progress_bar=False,
                                       enable_checkpointing=False, default_root_dir=folder), Net()  # fmt: skip
        again.fit(net, data, ckpt_path=trainer.checkpoint_callback.best_model_path)
        print("RESULT", net.losses)
