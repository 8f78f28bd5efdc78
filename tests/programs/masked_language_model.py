"""A small BERT: masked words, nn.TransformerEncoder with padding, gradient accumulation, warm-up, weight tying."""

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR
from torch.utils.data import DataLoader, Dataset

PAD, CLS, MASK, FIRST, VOCABULARY = 0, 1, 2, 3, 20


class Sentences(Dataset):
    """Arithmetic progressions modulo the number of words, of several lengths."""

    def __init__(self, n):
        start, stride = torch.randint(0, 17, (n,)), torch.randint(1, 4, (n,))
        self.sentences = [
            torch.cat([torch.tensor([CLS]), (start[i] + stride[i] * torch.arange(5 + i % 6)) % 17 + FIRST])
            for i in range(n)
        ]

    def __len__(self):
        return len(self.sentences)

    def __getitem__(self, i):
        return self.sentences[i]


def mask_words(batch, p=0.2):
    """A collate function: pads, hides words, and labels all others -100, which the loss ignores."""
    tokens = pad_sequence(batch, batch_first=True, padding_value=PAD)
    chosen = torch.rand(tokens.shape).lt(p) & (tokens >= FIRST)
    labels = tokens.masked_fill(~chosen, -100)
    hidden = chosen & (torch.rand(tokens.shape) < 0.8)
    replaced = chosen & ~hidden & (torch.rand(tokens.shape) < 0.5)
    tokens = tokens.masked_fill(hidden, MASK)
    tokens[replaced] = torch.randint(FIRST, VOCABULARY, tokens.shape)[replaced]
    return {"input_ids": tokens, "labels": labels, "attention_mask": tokens != PAD}


class TinyBert(nn.Module):
    def __init__(self, dim=32, max_length=12):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, dim, padding_idx=PAD)
        self.positions = nn.Embedding(max_length, dim)
        layer = nn.TransformerEncoderLayer(
            dim, nhead=4, dim_feedforward=48, dropout=0.1, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, num_layers=2, norm=nn.LayerNorm(dim), enable_nested_tensor=False)
        self.head = nn.Linear(dim, VOCABULARY)
        self.head.weight = self.tokens.weight
        self.register_buffer("position_ids", torch.arange(max_length).expand((1, -1)))

    def forward(self, input_ids, attention_mask):
        x = self.tokens(input_ids) + self.positions(self.position_ids[:, : input_ids.size(1)])
        return self.head(self.encoder(x, src_key_padding_mask=~attention_mask))


def main(steps=20, accumulate=2):
    torch.manual_seed(30)
    loader = DataLoader(Sentences(48), batch_size=8, shuffle=True, collate_fn=mask_words)
    model = TinyBert()
    criterion = nn.CrossEntropyLoss(ignore_index=-100)
    no_decay = ("bias", "norm")
    optimizer = torch.optim.AdamW([
        {"params": [p for n, p in model.named_parameters() if not any(k in n for k in no_decay)], "weight_decay": 0.01},
        {"params": [p for n, p in model.named_parameters() if any(k in n for k in no_decay)], "weight_decay": 0.0},
    ], lr=3e-3)  # fmt: skip
    scheduler = SequentialLR(
        optimizer, [LinearLR(optimizer, 0.1, total_iters=3), CosineAnnealingLR(optimizer, T_max=20)], milestones=[3]
    )
    losses = []
    while len(losses) < steps:
        for batch in loader:
            if len(losses) == steps:
                break
            labels = batch.pop("labels")
            logits = model(**batch)
            loss = criterion(logits.permute(0, 2, 1), labels)
            (loss / accumulate).backward()
            losses.append(loss.item())
            if len(losses) % accumulate == 0:
                torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
                optimizer.step()
                optimizer.zero_grad()
                scheduler.step()
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(main()):
        print(f"step {step}: loss {loss:.4f}")
