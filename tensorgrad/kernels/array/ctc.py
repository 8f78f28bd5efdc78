"""Connectionist temporal classification: the forward and backward recursions, over all samples and positions together.

A target of L labels is written with a blank before, between and after them: S = 2 L + 1 *positions*. A path stays at
its position, moves to the next one, or skips a blank between two different labels. Everything is a log-probability,
laid out (time, batch, position), so that one step of the recursion touches adjacent memory.
"""

from __future__ import annotations

import numpy as np

from tensorgrad.kernels.array.index import scatter_add


def spelled(xp, targets, lengths, blank):
    """Inserts blanks between the labels of the targets: (N, S); beyond a target's own positions there are only blanks.

    `targets` is (N, at least max(lengths)), or all of them concatenated in one dimension.
    """
    longest = max(lengths, default=0)
    count = len(lengths)
    out = xp.full((count, 2 * longest + 1), blank, dtype=np.int64)
    if targets.ndim == 1:
        starts = np.cumsum((0, *lengths))
        for n, length in enumerate(lengths):
            out[n, 1 : 2 * length : 2] = targets[starts[n] : starts[n] + length]
    elif longest:
        used = xp.arange(longest) < xp.asarray(lengths)[:, None]
        out[:, 1::2] = xp.where(used, targets[:, :longest], blank)
    return out


def ctc(xp, log_probs, targets, input_lengths, target_lengths, blank, zero_infinity):
    """Returns -log p(target) of each sample, (N), and the log-probabilities of all beginnings of paths, (T, N, S).

    `log_probs` (T, N, C); lengths are tuples of N integers. A target that no path produces has probability 0;
    `zero_infinity` affects only the gradient.
    """
    labels = spelled(xp, targets, target_lengths, blank)
    if labels.size and (int(labels.min()) < 0 or int(labels.max()) >= log_probs.shape[2]):
        raise IndexError(f"ctc_loss: targets must be classes from 0 to {log_probs.shape[2] - 1}")
    emitted = _emitted(xp, log_probs, labels)
    steps, count, positions = emitted.shape
    skip = _skips(xp, labels, log_probs.dtype)
    alpha = xp.empty_like(emitted)
    # two impossible positions before the first one, so that a shift is a slice
    padded = xp.full((count, positions + 2), -np.inf, log_probs.dtype)
    alpha[0] = -np.inf
    alpha[0, :, :2] = emitted[0, :, :2]
    with np.errstate(all="ignore"):
        for t in range(1, steps):
            padded[:, 2:] = alpha[t - 1]
            _log_sum(xp, padded[:, 2:], padded[:, 1:-1], padded[:, :-2] + skip, alpha[t])
            alpha[t] += emitted[t]
        samples = xp.arange(count)
        last = xp.asarray(input_lengths) - 1
        end = 2 * xp.asarray(target_lengths)
        total = alpha[last, samples, end]
        before = alpha[last, samples, xp.maximum(end - 1, 0)]
        total = xp.where(end > 0, xp.logaddexp(total, before), total)
        nothing = xp.where(end > 0, -np.inf, 0.0).astype(total.dtype)  # an empty input produces only the empty target
        return -xp.where(last < 0, nothing, total), alpha


def ctc_grad(xp, g, log_probs, losses, alpha, targets, input_lengths, target_lengths, blank, zero_infinity):
    """Computes the gradient: at each time the probability of each class minus its probability given the target.

    That is the derivative with respect to the input of the `log_softmax` that made `log_probs`, and passes through
    log_softmax unchanged. (The derivative with respect to free `log_probs` lacks the first term.) `g`, `losses` are
    (N), `alpha` is what `ctc` returned.
    """
    labels = spelled(xp, targets, target_lengths, blank)
    emitted = _emitted(xp, log_probs, labels)
    with np.errstate(all="ignore"):
        given = _endings(xp, emitted, _skips(xp, labels, log_probs.dtype), input_lengths, target_lengths)
        given += alpha
        given += losses[:, None]  # -log p(target): from the probability of a path to that of a path of the target
        xp.exp(given, out=given)
        given[emitted == -np.inf] = 0
        grad = xp.exp(log_probs)
        grad[:, :, blank] -= given[:, :, ::2].sum(2)
        labels = xp.broadcast_to(labels[:, 1::2], given[:, :, 1::2].shape)
        grad = scatter_add(xp, grad, 2, labels, -given[:, :, 1::2])
        if bool((losses == np.inf).any()):
            grad[:, losses == np.inf] = 0 if zero_infinity else np.nan
        grad *= g[:, None]
        steps = len(log_probs)
        if min(input_lengths) < steps:
            ended = xp.arange(steps)[:, None] >= xp.asarray(input_lengths)
            grad[ended] = 0
        return grad


def _endings(xp, emitted, skip, input_lengths, target_lengths):
    """The log-probabilities of all ends of paths, without the label of their first step, (T, N, S)."""
    steps, count, positions = emitted.shape
    beta = xp.empty_like(emitted)
    padded = xp.full((count, positions + 2), -np.inf, emitted.dtype)
    skip = xp.concatenate([skip[:, 2:], xp.full_like(skip[:, :2], -np.inf)], 1)[:, :positions]
    last_steps: dict[int, list[int]] = {}
    for n, length in enumerate(input_lengths):
        last_steps.setdefault(length - 1, []).append(n)
    for t in range(steps - 1, -1, -1):
        _log_sum(xp, padded[:, :-2], padded[:, 1:-1], padded[:, 2:] + skip, beta[t])
        for n in last_steps.get(t, ()):  # paths end at the last blank or the last label
            beta[t, n, max(2 * target_lengths[n] - 1, 0) : 2 * target_lengths[n] + 1] = 0
        xp.add(beta[t], emitted[t], out=padded[:, :-2])
    return beta


def _log_sum(xp, a, b, c, out):
    """Writes log(exp(a) + exp(b) + exp(c)) to `out`, including where all are minus infinity."""
    largest = xp.maximum(xp.maximum(a, b), c)
    xp.maximum(largest, np.finfo(largest.dtype).min, out=largest)  # so that -inf - largest remains -inf
    xp.exp(a - largest, out=out)
    out += xp.exp(b - largest)
    out += xp.exp(c - largest)
    xp.log(out, out=out)
    out += largest


def _emitted(xp, log_probs, labels):
    """The log-probability of emitting each position's label, (T, N, S)."""
    return xp.ascontiguousarray(log_probs[:, xp.arange(len(labels))[:, None], labels])


def _skips(xp, labels, dtype):
    """0 for the positions that may be reached from two before them, else minus infinity, (N, S)."""
    skip = xp.full(labels.shape, -np.inf, dtype)
    skip[:, 2:][labels[:, 2:] != labels[:, :-2]] = 0
    return skip
