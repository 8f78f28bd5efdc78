"""Speech recognition in miniature: convolutions over time, a bidirectional LSTM, the CTC loss."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BLANK, LETTERS = 0, 6


def utterances(n, n_mels=10):
    """Made-up spectrograms (batch, frequency, time) in which each letter is a band, with lengths and transcripts."""
    spectrograms, transcripts = [], []
    for _ in range(n):
        letters = torch.randint(1, LETTERS, (int(torch.randint(2, 5, ())),))
        frames = torch.cat([torch.full((int(torch.randint(4, 8, ())),), int(c)) for c in letters])
        bands = F.one_hot(frames, n_mels).float().t() * 2
        spectrograms.append(bands + 0.3 * torch.randn(n_mels, len(frames)))
        transcripts.append(letters)
    lengths = torch.tensor([s.size(1) for s in spectrograms])
    padded = torch.stack([F.pad(s, (0, int(lengths.max()) - s.size(1))) for s in spectrograms])
    return padded, lengths, torch.cat(transcripts), torch.tensor([len(t) for t in transcripts])


class CNNLayerNorm(nn.Module):
    """Layer normalisation over the channels of (batch, channels, time)."""

    def __init__(self, n_feats):
        super().__init__()
        self.layer_norm = nn.LayerNorm(n_feats)

    def forward(self, x):
        return self.layer_norm(x.transpose(1, 2).contiguous()).transpose(1, 2).contiguous()


class SpeechModel(nn.Module):
    def __init__(self, n_mels=10, hidden=16):
        super().__init__()
        self.conv = nn.Conv1d(n_mels, hidden, kernel_size=3, padding=1)
        self.residual = nn.ModuleList([
            nn.Sequential(CNNLayerNorm(hidden), nn.GELU(), nn.Dropout(0.1), nn.Conv1d(hidden, hidden, 3, padding=1))
            for _ in range(2)
        ])  # fmt: skip
        self.rnn = nn.LSTM(hidden, hidden, batch_first=True, bidirectional=True)
        self.classifier = nn.Sequential(nn.Linear(2 * hidden, hidden), nn.ReLU6(), nn.Linear(hidden, LETTERS))

    def forward(self, x):
        x = self.conv(x)
        for block in self.residual:
            x = x + block(x)
        x, _ = self.rnn(x.transpose(1, 2))
        return F.log_softmax(self.classifier(x), dim=-1).transpose(0, 1)  # (time, batch, class)


def greedy_decode(log_probs, lengths):
    """For each utterance the best letters, repeats and blanks removed."""
    texts = []
    for path, n in zip(log_probs.argmax(dim=-1).t(), lengths.tolist()):
        letters = torch.unique_consecutive(path[:n])
        texts.append(letters[letters != BLANK].tolist())
    return texts


def main(steps=20):
    torch.manual_seed(29)
    model = SpeechModel()
    criterion = nn.CTCLoss(blank=BLANK, zero_infinity=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    scheduler = torch.optim.lr_scheduler.CyclicLR(optimizer, 1e-3, 8e-3, step_size_up=5, cycle_momentum=False)
    losses = []
    for _ in range(steps):
        spectrograms, lengths, transcripts, target_lengths = utterances(8)
        log_probs = model(spectrograms)
        loss = criterion(log_probs, transcripts, lengths, target_lengths)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
        assert len(greedy_decode(log_probs, lengths)) == 8
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(main()):
        print(f"step {step}: loss {loss:.4f}")
