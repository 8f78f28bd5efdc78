"""Lightning's Trainer on two processes with FSDP and FSDP2: trains, saves whole tensors or pieces, and resumes."""

import json
import os
import shutil
import tempfile
import warnings

import lightning as L
import torch
from lightning.pytorch.strategies import FSDPStrategy, ModelParallelStrategy
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.utils.data import DataLoader, TensorDataset

warnings.simplefilter("ignore")


class OnProcessors(FSDPStrategy):
    """Lightning refuses its own class without a GPU; a class of one's own it takes."""


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.inner = nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, x):
        return x + torch.tanh(self.inner(self.norm(x)))


class Classifier(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.losses = []

    def configure_model(self):
        if hasattr(self, "net"):
            return
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(6, 15), Block(15), Block(15), nn.Linear(15, 3))
        if self.device_mesh is not None:
            for layer in (*self.net[1:3], self.net):
                fully_shard(layer, mesh=self.device_mesh["data_parallel"])
        else:  # Lightning's own call names no processor, and PyTorch then asks for a GPU
            self.net = FullyShardedDataParallel(
                self.net, auto_wrap_policy=ModuleWrapPolicy({Block}), device_id=torch.device("cpu"),
                use_orig_params=True,
            )  # fmt: skip

    def training_step(self, batch, index):
        loss = nn.functional.cross_entropy(self.net(batch[0]), batch[1])
        self.log("train", loss, sync_dist=True)
        self.losses.append(self.all_gather(loss.detach()).tolist())
        return loss

    def validation_step(self, batch, index):
        self.log("val", nn.functional.cross_entropy(self.net(batch[0]), batch[1]), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), 0.01, eps=1e-4)


def loader():
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(24, 6, generator=generator)
    return DataLoader(TensorDataset(inputs, inputs[:, :3].argmax(1)), 4)


def trainer(form, **options):
    strategy = (
        OnProcessors(state_dict_type="sharded") if form == "fsdp" else ModelParallelStrategy(2, 1, form[6:] != "whole")
    )
    return L.Trainer(
        accelerator="cpu", devices=2, strategy=strategy, logger=False, enable_progress_bar=False,
        enable_model_summary=False, enable_checkpointing=False, **options,
    )  # fmt: skip


# The second process has it, too.
folder, losses, numbers = os.environ.setdefault("LIGHTNING_EXAMPLE", tempfile.mkdtemp()), [], {}
for form in ("fsdp", "fsdp2 whole", "fsdp2 pieces"):  # (with FSDP and whole tensors PyTorch's process dies on a CPU)
    fit, model, file = trainer(form, max_epochs=1), Classifier(), os.path.join(folder, form)
    fit.fit(model, loader(), loader())
    fit.save_checkpoint(file)
    again, more = Classifier(), trainer(form, max_epochs=2)
    more.fit(again, loader(), ckpt_path=file)
    losses += [loss for both in model.losses for loss in both]
    numbers[form] = [sorted([name, float(value)] for name, value in fit.callback_metrics.items())]
    numbers[f"{form} resumed"] = [more.global_step, again.losses]
if fit.is_global_zero:
    weights = torch.load(os.path.join(folder, "fsdp2 whole"), weights_only=False)["state_dict"]
    numbers["weights"] = [[name, list(value.shape), value.norm().item()] for name, value in weights.items()]
    shutil.rmtree(folder)
    print(json.dumps({"losses": losses, "numbers": numbers}))
