"""Models of the libraries that are built on PyTorch: their own code, with `import torch` answered by either library.

Every model's weights are made once and read from a file, as a program reads those that it downloads. The files are in
the folder that the variable BENCHMARK_WEIGHTS names (`benchmarks.ecosystem` sets it, unless the user has).
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

from benchmarks.rows import Row, drawn, whole

NEEDED = {  # row -> the packages that it needs
    "GPT-2 124 M, 1×128, forward": ("transformers",),
    "GPT-2 124 M, 1×128, training step, AdamW": ("transformers",),
    "BERT-base, 1×128": ("transformers",),
    "BERT-base, 8×128, padded": ("transformers",),
    "Llama-like 15 M, 64 tokens": ("transformers",),
    "ViT-S/16, one image": ("timm", "torchvision"),
    "ResNet-50, one image": ("torchvision",),
    "LoRA on a small GPT-2, 8×64, step": ("transformers", "peft"),
}
DECLARED: list = []  # what `torchvision` declared, for as long as the process runs


def transformers():
    """Imports transformers as where torchvision is not installed, which it would import with every model."""
    sys.modules.setdefault("torchvision", None)  # type: ignore[arg-type]
    library = importlib.import_module("transformers")
    library.logging.set_verbosity_error()
    library.utils.logging.disable_progress_bar()
    return library


def torchvision(torch):
    """Imports torchvision. Operators of a wheel for CUDA do not load with a torch for CPUs; no model needs them."""
    try:
        return importlib.import_module("torchvision")
    except RuntimeError:  # operator torchvision::nms does not exist
        DECLARED.append(torch.library.Library("torchvision", "DEF"))
        for name in ("nms", "qnms"):
            DECLARED[0].define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        return importlib.import_module("torchvision")


def pretrained(torch, name: str, config, **sizes):
    """Returns a model of transformers, read from its folder, which is made by the first call."""
    library = transformers()
    folder = Path(os.environ["BENCHMARK_WEIGHTS"], "-".join([name, *map(str, sizes.values())]))
    kind = getattr(library, name)
    if not (folder / "config.json").exists():
        torch.manual_seed(0)
        kind(config(library, **sizes)).save_pretrained(folder)
    return kind.from_pretrained(folder)


def loaded(torch, model, name: str):
    """Reads a model's state from its file, which is made by the first call."""
    from safetensors.torch import load_file, save_file

    file = Path(os.environ["BENCHMARK_WEIGHTS"], f"{name}.safetensors")
    if not file.exists():
        save_file(model.state_dict(), file)
    model.load_state_dict(load_file(file))
    return model.eval()


def without_graph(torch, run):
    """Returns the two functions of a row that runs `run` without recording a graph."""

    def step():
        with torch.no_grad():
            return run()

    return step, lambda: [step()]


def gpt2_config(library, layers: int = 12, width: int = 768, words: int = 50257):
    """GPT-2's configuration."""
    return library.GPT2Config(n_layer=layers, n_embd=width, n_head=max(1, width // 64), vocab_size=words)


def gpt2_forward(torch, **sizes):
    """The logits of a text."""
    model = pretrained(torch, "GPT2LMHeadModel", gpt2_config, **sizes).eval()
    text = whole(torch, model.config.vocab_size, 1, 128)
    return without_graph(torch, lambda: model(text).logits)


def training(torch, model, text):
    """A training step. The results to compare are without dropout, whose random numbers may be drawn in any order."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=1e-5)
    model.train()

    def step():
        optimizer.zero_grad()
        loss = model(input_ids=text, labels=text).loss
        loss.backward()
        optimizer.step()
        return loss

    def results():
        model.eval()
        optimizer.zero_grad()
        loss = model(input_ids=text, labels=text).loss
        loss.backward()
        return [loss, *(p.grad for p in parameters)]

    return step, results


def gpt2_training(torch, **sizes):
    """A training step of all parameters."""
    model = pretrained(torch, "GPT2LMHeadModel", gpt2_config, **sizes)
    return training(torch, model, whole(torch, model.config.vocab_size, 1, 128))


def lora_training(torch, **sizes):
    """A training step of an adapter of rank 8 at all layers' attention, beside frozen weights."""
    model = pretrained(torch, "GPT2LMHeadModel", gpt2_config, **sizes)
    peft = importlib.import_module("peft")
    torch.manual_seed(0)
    config = peft.LoraConfig(task_type="CAUSAL_LM", r=8, target_modules=["c_attn"], fan_in_fan_out=True)
    return training(torch, peft.get_peft_model(model, config), whole(torch, model.config.vocab_size, 8, 64))


def bert_config(library, layers: int = 12, width: int = 768):
    """BERT-base's configuration."""
    return library.BertConfig(
        num_hidden_layers=layers, hidden_size=width, intermediate_size=4 * width, num_attention_heads=width // 64
    )


def bert_inference(torch, batch: int = 1, **sizes):
    """The hidden states of sentences of 128 words or, but for the first, fewer."""
    model = pretrained(torch, "BertModel", bert_config, **sizes).eval()
    words = whole(torch, model.config.vocab_size, batch, 128)
    mask = (torch.arange(128) < torch.arange(128, 128 - 8 * batch, -8)[:, None]).long()
    return without_graph(torch, lambda: model(input_ids=words, attention_mask=mask).last_hidden_state)


def llama_config(library, layers: int = 6, width: int = 288, words: int = 32000):
    """The configuration of a Llama of 15 million parameters, 9 million more for the words."""
    return library.LlamaConfig(
        num_hidden_layers=layers, hidden_size=width, intermediate_size=8 * width // 3, num_attention_heads=width // 48,
        num_key_value_heads=width // 48, vocab_size=words, max_position_embeddings=256, tie_word_embeddings=True,
        pad_token_id=0,
    )  # fmt: skip


def llama_generation(torch, tokens: int = 64, **sizes):
    """Generates tokens after 16 given ones, the most likely one each time, with a cache of keys and values."""
    model = pretrained(torch, "LlamaForCausalLM", llama_config, **sizes).eval()
    given = whole(torch, model.config.vocab_size, 1, 16)
    mask = torch.ones_like(given)
    return without_graph(
        torch,
        lambda: model.generate(
            given, attention_mask=mask, max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False
        ),
    )


def vit(torch, **sizes):
    """timm's vision transformer."""
    torchvision(torch)
    timm = importlib.import_module("timm")
    torch.manual_seed(0)
    model = loaded(torch, timm.create_model("vit_small_patch16_224", **sizes), f"vit-{len(sizes)}")
    image = drawn(torch, 1, 3, 224, 224)
    return without_graph(torch, lambda: model(image))


def resnet(torch, kind: str = "resnet50", pixels: int = 224):
    """torchvision's residual network."""
    models = torchvision(torch).models
    torch.manual_seed(0)
    model = loaded(torch, getattr(models, kind)(), kind)
    image = drawn(torch, 1, 3, pixels, pixels)
    return without_graph(torch, lambda: model(image))


SMALL = {"layers": 2, "width": 64}
BUILDS = {
    "GPT-2 124 M, 1×128, forward": (gpt2_forward, {}, SMALL | {"words": 99}),
    "GPT-2 124 M, 1×128, training step, AdamW": (gpt2_training, {}, SMALL | {"words": 99}),
    "BERT-base, 1×128": (bert_inference, {}, SMALL),
    "BERT-base, 8×128, padded": (bert_inference, {"batch": 8}, SMALL | {"batch": 3}),
    "Llama-like 15 M, 64 tokens": (llama_generation, {"tokens": 64}, {"layers": 2, "width": 96, "tokens": 5}),
    "ViT-S/16, one image": (vit, {}, {"depth": 2, "embed_dim": 96}),
    "ResNet-50, one image": (resnet, {}, {"kind": "resnet18", "pixels": 64}),
    "LoRA on a small GPT-2, 8×64, step": (
        lora_training, {"layers": 4, "width": 256, "words": 8000}, SMALL | {"words": 99}
    ),
}  # fmt: skip
ROWS = [Row(name, build, sizes, small, tolerance=1e-3, heavy=True) for name, (build, sizes, small) in BUILDS.items()]
