"""Word vectors by skip-gram with negative sampling, and a bag-of-words classifier over nn.EmbeddingBag."""

from collections import Counter

import torch
import torch.nn as nn
import torch.nn.functional as F

CORPUS = """
the cat sat on the mat while the dog slept by the door and the bird sang in the tree
a cat and a dog may share a house but the bird would rather keep to the tree or the roof
on the roof the cat watched the bird and in the house the dog watched the cat
""".split()


class SkipGram(nn.Module):
    def __init__(self, vocabulary, dim, noise):
        super().__init__()
        self.centre = nn.Embedding(vocabulary, dim)
        self.context = nn.Embedding(vocabulary, dim)
        self.centre.weight.data.uniform_(-0.5 / dim, 0.5 / dim)
        self.context.weight.data.zero_()
        self.register_buffer("noise", noise)

    def forward(self, centre, context, k=5):
        n = centre.shape[0]
        negative = torch.multinomial(self.noise, n * k, replacement=True).view(n, k)
        v = self.centre(centre)
        positive_score = torch.einsum("nd,nd->n", v, self.context(context))
        negative_score = torch.einsum("nd,nkd->nk", v, self.context(negative))
        return -(F.logsigmoid(positive_score) + F.logsigmoid(-negative_score).sum(1)).mean()


class TextClassifier(nn.Module):
    """Averages the vectors of a text's words and classifies the average."""

    def __init__(self, vocabulary, dim, classes):
        super().__init__()
        self.embedding = nn.EmbeddingBag(vocabulary, dim, mode="mean")
        self.fc = nn.Linear(dim, classes)
        self.embedding.weight.data.uniform_(-0.5, 0.5)

    def forward(self, text, offsets):
        return self.fc(self.embedding(text, offsets))


def pairs(ids, window=2):
    found = [(ids[i], ids[j]) for i in range(len(ids)) for j in range(i - window, i + window + 1)
             if i != j and 0 <= j < len(ids)]  # fmt: skip
    return torch.tensor(found).unbind(1)


def collate(texts):
    """Texts of several lengths as one long tensor and where each begins."""
    offsets = torch.tensor([0] + [len(t) for t in texts[:-1]]).cumsum(dim=0)
    return torch.cat(texts), offsets


def main(steps=20):
    torch.manual_seed(4)
    counts = Counter(CORPUS)
    words = sorted(counts, key=lambda w: (-counts[w], w))
    ids = [words.index(w) for w in CORPUS]
    frequency = torch.tensor([counts[w] for w in words], dtype=torch.float)
    noise = frequency.pow(0.75) / frequency.pow(0.75).sum()
    centre, context = pairs(ids)
    keep = torch.rand(len(centre)) < torch.sqrt(2 / frequency[centre]).clamp(max=1)  # frequent words teach less
    centre, context = centre[keep], context[keep]

    skip_gram = SkipGram(len(words), 12, noise)
    classifier = TextClassifier(len(words), 12, 2)
    optimizer = torch.optim.Adam([*skip_gram.parameters(), *classifier.parameters()], lr=0.02, eps=1e-6)
    texts = [torch.tensor(ids[i : i + 4 + i % 3]) for i in range(0, 45, 5)]
    has_cat = torch.tensor([int(words.index("cat") in t.tolist()) for t in texts])
    losses = []
    for _ in range(steps):
        batch = torch.randperm(len(centre))[:32]
        loss = skip_gram(centre[batch], context[batch])
        loss = loss + F.cross_entropy(classifier(*collate(texts)), has_cat, weight=torch.tensor([0.5, 1.0]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    similar = F.cosine_similarity(skip_gram.centre.weight[:1], skip_gram.centre.weight)
    assert similar.topk(3).indices[0] == 0
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(main()):
        print(f"step {step}: loss {loss:.4f}")
