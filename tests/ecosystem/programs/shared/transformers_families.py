"""Trains a tiny model of each of some families of transformers three steps, saves it and loads it."""

import json
import os
import sys
import tempfile

import torch
import transformers

transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()


def tokens(batch=2, length=9, of=60):
    """Token ids that are not special."""
    return torch.randint(4, of, (batch, length))


def adamw(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-3, eps=1e-4)


def sgd(model):
    """For models with batch normalisation: AdamW's steps have the sign of gradients that are nearly zero."""
    return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)


def three_steps(name, make, inputs, optimizer_of=adamw):
    """Trains one model three steps. Returns it, its inputs and its losses."""
    torch.manual_seed(0)
    model = make()
    batch = inputs()
    optimizer = optimizer_of(model)
    model.train()
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    assert any(p.grad is not None for p in model.parameters()), name
    return model.eval(), batch, losses


def first_tensor(outputs):
    """The logits of a model's outputs, or what comes closest."""
    for key in ("logits", "logits_per_image", "last_hidden_state"):
        if outputs.get(key) is not None:
            return outputs[key]
    return next(value for value in outputs.values() if torch.is_tensor(value) and value.dim() > 1)


def saved_and_loaded(name, model, batch, folder):
    """The outputs of the model loaded from a folder, which has safetensors; they agree with the model's."""
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        model.save_pretrained(path)
    assert os.path.exists(os.path.join(path, "model.safetensors"))
    loaded = type(model).from_pretrained(path).eval()
    with torch.no_grad():
        expected, found = first_tensor(model(**batch)), first_tensor(loaded(**batch))
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)
    return loaded, found


def some(tensor):
    """The first numbers of a tensor, and its norm."""
    return [*tensor.flatten()[:4].tolist(), tensor.float().norm().item()]


def run(families, generate=None, optimizer_of=adamw):
    """Runs the families: name -> (function that makes the model, function that makes its inputs)."""
    folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
    chosen = sys.argv[2].split(",") if len(sys.argv) > 2 else families
    losses, numbers = [], {}
    for name in chosen:
        make, inputs = families[name]
        model, batch, its = three_steps(name, make, inputs, optimizer_of)
        losses += its
        loaded, outputs = saved_and_loaded(name, model, batch, folder)
        numbers[name] = [*its, *some(outputs)]
        if generate is not None:
            for how, ids in generate(loaded, batch):
                numbers[f"{name} {how}"] = ids.tolist()
    print(json.dumps({"losses": losses, "numbers": numbers}))
