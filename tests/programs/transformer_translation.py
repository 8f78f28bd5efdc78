"""nn.Transformer learns to translate an invented language: shift every word and swap neighbours."""

import math

import torch
import torch.nn as nn
from torch import Tensor
from torch.nn import Transformer

PAD, BOS, EOS = 0, 1, 2
VOCABULARY = 20


class PositionalEncoding(nn.Module):
    def __init__(self, emb_size: int, dropout: float, maxlen: int = 50):
        super().__init__()
        den = torch.exp(-torch.arange(0, emb_size, 2) * math.log(10000) / emb_size)
        pos = torch.arange(0, maxlen).reshape(maxlen, 1)
        table = torch.zeros((maxlen, emb_size))
        table[:, 0::2] = torch.sin(pos * den)
        table[:, 1::2] = torch.cos(pos * den)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("table", table.unsqueeze(-2))

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(x + self.table[: x.size(0), :])


class Seq2SeqTransformer(nn.Module):
    def __init__(self, emb_size: int = 32, nhead: int = 4, layers: int = 2, dropout: float = 0.1):
        super().__init__()
        self.emb_size = emb_size
        self.transformer = Transformer(
            d_model=emb_size, nhead=nhead, num_encoder_layers=layers, num_decoder_layers=layers,
            dim_feedforward=64, dropout=dropout,
        )  # fmt: skip
        self.generator = nn.Linear(emb_size, VOCABULARY)
        self.src_tok_emb = nn.Embedding(VOCABULARY, emb_size)
        self.tgt_tok_emb = nn.Embedding(VOCABULARY, emb_size)
        self.positional_encoding = PositionalEncoding(emb_size, dropout)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.xavier_uniform_(p)

    def embed(self, table: nn.Embedding, tokens: Tensor) -> Tensor:
        return self.positional_encoding(table(tokens.long()) * math.sqrt(self.emb_size))

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        tgt_mask = nn.Transformer.generate_square_subsequent_mask(tgt.size(0))
        src_padding, tgt_padding = (src == PAD).transpose(0, 1), (tgt == PAD).transpose(0, 1)
        outs = self.transformer(
            self.embed(self.src_tok_emb, src), self.embed(self.tgt_tok_emb, tgt), tgt_mask=tgt_mask,
            src_key_padding_mask=src_padding,
            tgt_key_padding_mask=torch.zeros_like(tgt_mask[:1]).expand(tgt.size(1), -1).masked_fill(
                tgt_padding, float("-inf")  # of the same type as the other mask
            ),
            memory_key_padding_mask=src_padding,
        )  # fmt: skip
        return self.generator(outs)

    @torch.no_grad()
    def greedy_decode(self, src: Tensor, max_len: int) -> Tensor:
        memory = self.transformer.encoder(self.embed(self.src_tok_emb, src))
        ys = torch.full((1, src.size(1)), BOS, dtype=torch.long)
        for _ in range(max_len - 1):
            mask = nn.Transformer.generate_square_subsequent_mask(ys.size(0))
            out = self.transformer.decoder(self.embed(self.tgt_tok_emb, ys), memory, mask)
            next_word = self.generator(out[-1]).argmax(dim=1)
            ys = torch.cat([ys, next_word.unsqueeze(0)], dim=0)
        return ys


def translate(sentence: Tensor) -> Tensor:
    words = (sentence - 3 + 5) % (VOCABULARY - 3) + 3
    even = len(words) // 2 * 2
    return torch.cat([words[:even].view(-1, 2).flip(1).reshape(-1), words[even:]])


def batch(n: int):
    def framed(words):
        return torch.cat([torch.tensor([BOS]), words, torch.tensor([EOS])])

    sources = [torch.randint(3, VOCABULARY, (int(torch.randint(4, 9, (1,))),)) for _ in range(n)]
    pad = nn.utils.rnn.pad_sequence
    return pad([framed(s) for s in sources]), pad([framed(translate(s)) for s in sources])


def main(steps=20):
    torch.manual_seed(0)
    model = Seq2SeqTransformer()
    loss_fn = nn.CrossEntropyLoss(ignore_index=PAD)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, betas=(0.9, 0.98), eps=1e-9)
    losses = []
    for _ in range(steps):
        src, tgt = batch(12)
        logits = model(src, tgt[:-1, :])
        loss = loss_fn(logits.reshape(-1, logits.shape[-1]), tgt[1:, :].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    losses[-1] += model.greedy_decode(batch(4)[0], 6).double().mean().item()
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(main()):
        print(f"step {step}: loss {loss:.4f}")
