"""A small GPT: attention, embeddings, tied weights, sampling."""

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn as nn
from torch.nn import functional as F


@dataclass
class Config:
    vocabulary: int = 32
    block: int = 16
    layers: int = 2
    heads: int = 2
    width: int = 16
    dropout: float = 0.0


class Attention(nn.Module):
    mask: torch.Tensor

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads = config.heads
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.out = nn.Linear(config.width, config.width)
        mask = torch.tril(torch.ones(config.block, config.block)).view(1, 1, config.block, config.block)
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, c = x.size()
        q, k, v = self.qkv(x).split(c, dim=2)
        q = q.view(b, t, self.heads, c // self.heads).transpose(1, 2)
        k = k.view(b, t, self.heads, c // self.heads).transpose(1, 2)
        v = v.view(b, t, self.heads, c // self.heads).transpose(1, 2)
        scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        scores = scores.masked_fill(self.mask[:, :, :t, :t] == 0, float("-inf"))
        mixed = F.softmax(scores, dim=-1) @ v
        fused = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=0.0)
        assert torch.allclose(mixed, fused, atol=1e-5)
        y: torch.Tensor = self.out(mixed.transpose(1, 2).contiguous().view(b, t, c))
        return y


class Block(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(config.width)
        self.attention = Attention(config)
        self.norm2 = nn.LayerNorm(config.width)
        self.mlp = nn.ModuleDict(
            {
                "up": nn.Linear(config.width, 4 * config.width),
                "act": nn.GELU(approximate="tanh"),
                "down": nn.Linear(4 * config.width, config.width),
            }
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        h: torch.Tensor = self.norm2(x)
        for layer in self.mlp.values():
            h = layer(h)
        return x + h


class GPT(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.positions = nn.Embedding(config.block, config.width)
        self.blocks = nn.ModuleList([Block(config) for _ in range(config.layers)])
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)
        self.head.weight = self.tokens.weight
        self.apply(self.initialize)

    def initialize(self, module: nn.Module) -> None:
        if isinstance(module, (nn.Linear, nn.Embedding)):
            torch.nn.init.normal_(module.weight, mean=0.0, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            torch.nn.init.zeros_(module.bias)

    def forward(
        self, ids: torch.Tensor, targets: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        positions = torch.arange(0, ids.size(1), dtype=torch.long, device=ids.device)
        x = self.tokens(ids) + self.positions(positions)
        for block in self.blocks:
            x = block(x)
        logits: torch.Tensor = self.head(self.norm(x))
        if targets is None:
            return logits, None
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.reshape(-1), ignore_index=-1)

    @torch.no_grad()
    def generate(
        self, ids: torch.Tensor, count: int, temperature: float = 1.0, top_k: int | None = None
    ) -> torch.Tensor:
        for _ in range(count):
            logits, _ = self(ids[:, -self.config.block :])
            logits = logits[:, -1, :] / temperature
            if top_k is not None:
                values, _ = torch.topk(logits, min(top_k, logits.size(-1)))
                logits[logits < values[:, [-1]]] = -float("inf")
            probabilities = F.softmax(logits, dim=-1)
            ids = torch.cat((ids, torch.multinomial(probabilities, num_samples=1)), dim=1)
        return ids


def main() -> None:
    torch.manual_seed(1)
    model = GPT(Config())
    groups: list[dict[str, Any]] = [
        {"params": [p for p in model.parameters() if p.dim() >= 2], "weight_decay": 0.1},
        {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95))
    data = torch.randint(0, 32, (4, 17))
    for _ in range(2):
        logits, loss = model(data[:, :-1], data[:, 1:])
        optimizer.zero_grad(set_to_none=True)
        assert loss is not None
        loss.backward()
        optimizer.step()
    print(model.generate(data[:1, :4], 3, top_k=5).shape)


if __name__ == "__main__":
    main()
