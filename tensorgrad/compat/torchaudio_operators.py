"""The operators of torchaudio's compiled part, `torch.ops.torchaudio`: recursive filters, alignment, transducer loss.

Sources: A. Graves, "Sequence transduction with recurrent neural networks" (2012); L. Kürzinger et al.,
"CTC-segmentation of large corpora" (2020).
"""

from __future__ import annotations

from typing import Any

import numpy as np

import tensorgrad as torch
from tensorgrad.tensor import Tensor


def _lfilter_core_loop(input_signal_windows: Tensor, a_coeff_flipped: Tensor, padded_output_waveform: Tensor) -> Tensor:
    """Writes y[t] = x[t] - (a[n] y[t - n] + ... + a[1] y[t - 1]) into the output (batch, channels, n + time).

    Args:
        input_signal_windows: x, (batch, channels, time).
        a_coeff_flipped: a[n] to a[0], (channels, n + 1).
        padded_output_waveform: y, whose first n values are given.
    """
    x, a = input_signal_windows.detach().numpy(), a_coeff_flipped.detach().numpy()[:, :-1]
    y, order = padded_output_waveform.detach().numpy().copy(), a.shape[1]
    for t in range(x.shape[2]):
        y[:, :, t + order] = x[:, :, t] - np.einsum("bcn,cn->bc", y[:, :, t : t + order], a)
    with torch.no_grad():
        return padded_output_waveform.copy_(torch.from_numpy(y))


def _overdrive_core_loop(
    waveform: Tensor, temp: Tensor, last_in: Tensor, last_out: Tensor, output_waveform: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Writes the sum of half the waveform (channels, time) and a high-passed `temp` into the output."""
    x, distorted = waveform.detach().numpy(), temp.detach().numpy()
    out, before, filtered = np.empty_like(x), last_in.detach().numpy().copy(), last_out.detach().numpy().copy()
    for t in range(x.shape[1]):
        filtered = distorted[:, t] - before + x.dtype.type(0.995) * filtered
        before = distorted[:, t]
        out[:, t] = x[:, t] * x.dtype.type(0.5) + filtered * x.dtype.type(0.75)
    with torch.no_grad():
        for tensor, value in ((last_in, before), (last_out, filtered), (output_waveform, out)):
            tensor.copy_(torch.from_numpy(np.ascontiguousarray(value)))
    return last_in, last_out, output_waveform


def forced_align(
    log_probs: Tensor, targets: Tensor, input_lengths: Tensor, target_lengths: Tensor, blank: int
) -> tuple[Tensor, Tensor]:
    """Returns the most probable path of labels through frames (1, T) that spells `targets`, and `log_probs`.

    Args:
        log_probs: Log probabilities of labels, (1, T, labels).
        targets: The labels to be spelled, (1, L), none of which is the blank.

    Raises:
        RuntimeError: For more than one sequence, or if there are too few frames.
    """
    if log_probs.dim() != 3 or log_probs.shape[0] != 1 or targets.dim() != 2 or targets.shape[0] != 1:
        raise RuntimeError("The batch dimension for log_probs and targets must be 1 at the current version.")
    length, count = int(input_lengths.reshape(-1)[0]), int(target_lengths.reshape(-1)[0])
    p, spelled = log_probs.detach().numpy()[0, :length], targets.numpy()[0, :count]
    if (spelled == blank).any():
        raise RuntimeError(f"targets Tensor shouldn't contain blank index. Found {targets}.")
    states = np.full(2 * count + 1, blank)
    states[1::2] = spelled
    repeats = int((spelled[1:] == spelled[:-1]).sum())
    if length < count + repeats:
        raise RuntimeError(
            f"targets length is too long for CTC. Found targets length: {count}, log_probs length: {length}, and "
            f"number of repeats: {repeats}"
        )
    skips = np.zeros(len(states), bool)  # whether a state may follow the one two before it
    skips[2:] = (states[2:] != blank) & (states[2:] != states[:-2])
    best = np.full(len(states), -np.inf, p.dtype)
    best[:2] = p[0, states[:2]]
    came = np.zeros((length, len(states)), np.int8)
    for t in range(1, length):
        one = np.concatenate([[-np.inf], best[:-1]])
        two = np.where(skips, np.concatenate([[-np.inf, -np.inf], best[:-2]])[: len(states)], -np.inf)
        ways = np.stack([best, one, two])
        came[t] = ways.argmax(axis=0)
        best = (ways.max(axis=0) + p[t, states]).astype(p.dtype)
    state = len(states) - 1 if len(states) == 1 or best[-1] > best[-2] else len(states) - 2
    path = np.empty(length, np.int64)
    for t in range(length - 1, -1, -1):
        path[t] = state
        state -= came[t, state]
    labels = states[path].astype(targets.numpy().dtype)
    return torch.from_numpy(labels[None].copy()), log_probs


def rnnt_loss_forward(
    logits: Tensor,
    targets: Tensor,
    logit_lengths: Tensor,
    target_lengths: Tensor,
    blank: int,
    clamp: float,
    fused_log_softmax: bool,
) -> tuple[Tensor, Tensor]:
    """Returns the transducer loss of each sequence, (B,), and its gradient for the logits.

    Args:
        logits: (B, T, U + 1, labels); if not `fused_log_softmax`, log probabilities.
        targets: (B, U).
        clamp: Gradients are limited to this magnitude, if it is positive.
    """
    if blank < 0:
        blank += logits.shape[-1]
    x = logits.detach().numpy().astype(np.float64)
    labels = targets.numpy().astype(np.int64)
    costs, gradients = np.zeros(len(x)), np.zeros_like(x)
    for b in range(len(x)):
        frames, words = int(logit_lengths[b]), int(target_lengths[b])
        part = x[b, :frames, : words + 1]
        log_p = part
        if fused_log_softmax:
            peak = part.max(axis=-1, keepdims=True)
            log_p = part - peak - np.log(np.exp(part - peak).sum(axis=-1, keepdims=True))
        costs[b], g = _transducer(log_p, labels[b, :words], blank)
        if fused_log_softmax:
            g = g - np.exp(log_p) * g.sum(axis=-1, keepdims=True)
        gradients[b, :frames, : words + 1] = np.clip(g, -clamp, clamp) if clamp > 0 else g
    made: list[Any] = [array.astype(logits.detach().numpy().dtype) for array in (costs, gradients)]
    return torch.from_numpy(made[0]), torch.from_numpy(made[1])


def _transducer(log_p: np.ndarray, labels: np.ndarray, blank: int) -> tuple[float, np.ndarray]:
    """Returns the negative log probability of `labels`, and its derivative for `log_p` (T, U + 1, labels)."""
    frames, places = log_p.shape[:2]
    stay = log_p[:, :, blank]  # the next frame
    say = np.take_along_axis(log_p[:, :-1], labels[None, :, None], axis=2)[..., 0]  # the next label
    ahead = np.full((frames, places), -np.inf)
    behind = np.full((frames + 1, places), -np.inf)
    ahead[0, 0], behind[frames, places - 1] = 0.0, 0.0
    for t in range(frames):
        for u in range(places):
            if t:
                ahead[t, u] = np.logaddexp(ahead[t, u], ahead[t - 1, u] + stay[t - 1, u])
            if u:
                ahead[t, u] = np.logaddexp(ahead[t, u], ahead[t, u - 1] + say[t, u - 1])
    for t in range(frames - 1, -1, -1):
        for u in range(places - 1, -1, -1):
            behind[t, u] = behind[t + 1, u] + stay[t, u]
            if u < places - 1:
                behind[t, u] = np.logaddexp(behind[t, u], behind[t, u + 1] + say[t, u])
    total = behind[0, 0]
    gradient = np.zeros_like(log_p)
    gradient[:, :, blank] -= np.exp(ahead + stay + behind[1:] - total)
    spoken = np.exp(ahead[:, :-1] + say + behind[:-1, 1:] - total)
    for u, label in enumerate(labels):
        gradient[:, u, label] -= spoken[:, u]
    return -float(total), gradient


OPERATORS = {f.__name__: f for f in (_lfilter_core_loop, _overdrive_core_loop, forced_align, rnnt_loss_forward)}
ABOUT = {"cuda_version": lambda: None, "is_align_available": lambda: True}  # of `torch.ops._torchaudio`
