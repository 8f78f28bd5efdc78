"""Three steps of training, and a model that is saved and loaded."""

import os

import torch


def three_steps(optimizer, loss_of, steps=3):
    """Takes steps down the loss that a function computes. Returns the losses."""
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = loss_of()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def saved_and_loaded(model, again, folder, name="model.pt"):
    """Saves a model's state unless the file is there, and loads it into another model, which is returned."""
    file = os.path.join(folder, name)
    if not os.path.exists(file):
        torch.save(model.state_dict(), file)
    again.load_state_dict(torch.load(file))
    return again.eval()


def some(tensor):
    """The first numbers of a tensor, and its norm."""
    tensor = tensor.detach()
    return [*tensor.flatten()[:4].tolist(), tensor.norm().item()]
