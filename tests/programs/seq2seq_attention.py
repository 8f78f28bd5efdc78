"""Reversing sequences: a bidirectional GRU over packed sequences, a decoder with attention, teacher forcing."""

import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import optim
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

PAD, SOS, EOS = 0, 1, 2
VOCABULARY = 12


class Encoder(nn.Module):
    def __init__(self, hidden=24):
        super().__init__()
        self.hidden = hidden
        self.embedding = nn.Embedding(VOCABULARY, hidden, padding_idx=PAD)
        self.gru = nn.GRU(hidden, hidden, num_layers=2, dropout=0.1, bidirectional=True)

    def forward(self, source, lengths):
        packed = pack_padded_sequence(self.embedding(source), lengths, enforce_sorted=False)
        outputs, state = self.gru(packed)
        outputs, _ = pad_packed_sequence(outputs)
        outputs = outputs[:, :, : self.hidden] + outputs[:, :, self.hidden :]  # both directions
        return outputs, state[:2]


class Attention(nn.Module):
    """Scores of the encoder's outputs for a query, by Luong's general form."""

    def __init__(self, hidden=24):
        super().__init__()
        self.attn = nn.Linear(hidden, hidden)

    def forward(self, query, outputs, mask):
        energies = torch.sum(query * self.attn(outputs), dim=2).t()
        return F.softmax(energies.masked_fill(mask, -1e9), dim=1).unsqueeze(1)


class Decoder(nn.Module):
    def __init__(self, hidden=24):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, hidden)
        self.dropout = nn.Dropout(0.1)
        self.gru = nn.GRU(hidden, hidden, num_layers=2, dropout=0.1)
        self.attention = Attention(hidden)
        self.concat = nn.Linear(2 * hidden, hidden)
        self.out = nn.Linear(hidden, VOCABULARY)

    def forward(self, token, state, outputs, mask):
        output, state = self.gru(self.dropout(self.embedding(token)), state)
        weights = self.attention(output, outputs, mask)
        context = weights.bmm(outputs.transpose(0, 1)).squeeze(1)
        combined = torch.tanh(self.concat(torch.cat((output.squeeze(0), context), 1)))
        return F.log_softmax(self.out(combined), dim=1), state


def random_batch(n):
    """Source and target sequences (time first, padded) and the sources' lengths."""
    lengths = torch.randint(3, 8, (n,))
    sources = [torch.randint(3, VOCABULARY, (length,)) for length in lengths.tolist()]
    targets = [torch.cat([s.flip(0), torch.tensor([EOS])]) for s in sources]
    return pad_sequence(sources, padding_value=PAD), lengths, pad_sequence(targets, padding_value=PAD)


def train_step(encoder, decoder, optimizers, criterion, n=16, teacher_forcing_ratio=0.5):
    source, lengths, target = random_batch(n)
    for optimizer in optimizers:
        optimizer.zero_grad()
    outputs, state = encoder(source, lengths)
    mask = (source == PAD).t()
    token = torch.tensor([[SOS] * n])
    loss = 0
    use_teacher_forcing = random.random() < teacher_forcing_ratio
    for t in range(target.size(0)):
        log_probs, state = decoder(token, state, outputs, mask)
        loss += criterion(log_probs, target[t])
        token = target[t].view(1, -1) if use_teacher_forcing else log_probs.topk(1)[1].view(1, -1).detach()
    loss.backward()
    for module in (encoder, decoder):
        nn.utils.clip_grad_norm_(module.parameters(), 1.0)
    for optimizer in optimizers:
        optimizer.step()
    return loss.item() / target.size(0)


def main(steps=20):
    random.seed(10)
    torch.manual_seed(10)
    encoder, decoder = Encoder(), Decoder()
    optimizers = [optim.Adam(m.parameters(), lr=rate) for m, rate in ((encoder, 0.003), (decoder, 0.006))]
    criterion = nn.NLLLoss(ignore_index=PAD)
    return [train_step(encoder, decoder, optimizers, criterion) for _ in range(steps)]


if __name__ == "__main__":
    for step, loss in enumerate(main()):
        print(f"step {step}: loss {loss:.4f}")
