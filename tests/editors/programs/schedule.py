"""Optimizers and schedulers: groups, closures, warm-up, plateau, mixed precision."""

from typing import Any

import torch
from torch import nn, optim
from torch.optim import Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, LinearLR, LRScheduler, ReduceLROnPlateau, SequentialLR


def warmup(optimizer: Optimizer, steps: int) -> LRScheduler:
    first = LinearLR(optimizer, start_factor=0.1, total_iters=steps)
    return SequentialLR(optimizer, [first, CosineAnnealingLR(optimizer, T_max=10, eta_min=1e-5)], milestones=[steps])


def train(model: nn.Module, optimizer: Optimizer, scheduler: LRScheduler) -> list[float]:
    rates: list[float] = []
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    for _ in range(4):
        with torch.autocast(device_type="cpu", dtype=torch.bfloat16, enabled=False):
            loss = model(torch.randn(8, 3)).square().mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        total = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        scheduler.step()
        rates.append(float(scheduler.get_last_lr()[0]) + 0.0 * total.item())
    return rates


def main() -> None:
    model = nn.Linear(3, 1)
    groups: list[dict[str, Any]] = [{"params": [model.weight]}, {"params": [model.bias], "lr": 1e-2}]
    adam = optim.Adam(groups, lr=1e-3, amsgrad=True)
    print(train(model, adam, warmup(adam, 2)))
    for group in adam.param_groups:
        group["lr"] *= 0.5
    rms = optim.RMSprop(model.parameters(), lr=0.01, alpha=0.95)
    print(train(model, rms, LambdaLR(rms, lr_lambda=lambda epoch: 0.95**epoch)))
    plateau = ReduceLROnPlateau(rms, mode="min", factor=0.5, patience=1)
    plateau.step(1.0)
    lbfgs = optim.LBFGS(model.parameters(), max_iter=3, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        lbfgs.zero_grad()
        loss: torch.Tensor = model(torch.ones(2, 3)).pow(2).sum()
        loss.backward()
        return loss

    lbfgs.step(closure)
    state = adam.state_dict()
    adam.load_state_dict(state)
    print(sorted(state), rms.defaults["lr"])


if __name__ == "__main__":
    main()
