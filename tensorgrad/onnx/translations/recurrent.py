"""LSTM, GRU and RNN layers: one operator for each direction of each layer."""

from __future__ import annotations

from typing import Any

from tensorgrad.onnx.builder import Builder, Value
from tensorgrad.onnx.sizes import Varying
from tensorgrad.onnx.translations.table import translates


@translates("lstm_layer")
def lstm(
    g: Builder, x: Value, h: Value, c: Value, w_ih: Value, w_hh: Value, b_ih: Any, b_hh: Any, w_hr: Any, sizes: Any,
    reverse: Any, batch_first: Any,
) -> Any:  # fmt: skip
    if w_hr is not None:
        raise NotImplementedError("a projection")
    layer = _Layer(g, x, h, sizes, batch_first)
    weights = layer.weights(w_ih, w_hh, b_ih, b_hh, (0, 3, 1, 2))  # i f g o -> i o f g
    out, h_n, c_n = g.op(
        "LSTM", layer.rows, *weights, None, g.unsqueeze(h, 0), g.unsqueeze(c, 0), outputs=3, hidden_size=layer.hidden,
        direction="reverse" if reverse else None,
    )  # fmt: skip
    return layer.result(out), g.squeeze(h_n, 0), g.squeeze(c_n, 0)


@translates("gru_layer")
def gru(
    g: Builder, x: Value, h: Value, w_ih: Value, w_hh: Value, b_ih: Any, b_hh: Any, sizes: Any, reverse: Any,
    batch_first: Any,
) -> Any:  # fmt: skip
    layer = _Layer(g, x, h, sizes, batch_first)
    weights = layer.weights(w_ih, w_hh, b_ih, b_hh, (1, 0, 2))  # r z n -> z r n
    out, h_n = g.op(
        "GRU", layer.rows, *weights, None, g.unsqueeze(h, 0), outputs=2, hidden_size=layer.hidden,
        linear_before_reset=1, direction="reverse" if reverse else None,
    )  # fmt: skip
    return layer.result(out), g.squeeze(h_n, 0)


@translates("rnn_layer")
def rnn(
    g: Builder, x: Value, h: Value, w_ih: Value, w_hh: Value, b_ih: Any, b_hh: Any, sizes: Any, reverse: Any,
    relu: Any, batch_first: Any,
) -> Any:  # fmt: skip
    layer = _Layer(g, x, h, sizes, batch_first)
    out, h_n = g.op(
        "RNN", layer.rows, *layer.weights(w_ih, w_hh, b_ih, b_hh, (0,)), None, g.unsqueeze(h, 0), outputs=2,
        hidden_size=layer.hidden, activations=["Relu"] if relu else None, direction="reverse" if reverse else None,
    )  # fmt: skip
    return layer.result(out), g.squeeze(h_n, 0)


class _Layer:
    """What the three have in common: rows of the input by time, weights by gate, rows of the result."""

    def __init__(self, g: Builder, x: Value, h: Value, sizes: Any, batch_first: Any) -> None:
        self.g, self.h, self.batch_first = g, h, batch_first
        self.hidden = int(h.shape[-1])
        self.lengths = _by_recording(sizes, g.recordings)
        if any(len(set(batches)) != 1 for batches in self.lengths):
            raise NotImplementedError("sequences of different lengths")
        batch, features = h.shape[0], x.shape[-1]
        source = x.reshaped_from
        if source is not None and source.shapes == self._shapes(int(features)):
            rows = source
        else:
            rows = g.op("Reshape", x, g.ints([batch, -1, features] if batch_first else [-1, batch, features]))
        self.rows = g.transpose(rows, [1, 0, 2]) if batch_first else rows

    def _shapes(self, features: int) -> list[tuple[int, ...]]:
        sizes = [(len(batches), batches[0]) for batches in self.lengths]
        return [(b, t, features) if self.batch_first else (t, b, features) for t, b in sizes]

    def weights(self, w_ih: Value, w_hh: Value, b_ih: Any, b_hh: Any, order: tuple[int, ...]) -> list[Value | None]:
        """The weights with the gates in ONNX's order, and the biases as one."""
        g = self.g
        w, r = (g.unsqueeze(_ordered(g, v, order), 0) for v in (w_ih, w_hh))
        if b_ih is None:
            return [w, r, None]
        biases = [_ordered(g, b, order) for b in (b_ih, b_hh)]
        return [w, r, g.unsqueeze(g.op("Concat", *biases, axis=0), 0)]

    def result(self, out: Value) -> Value | None:
        """The states of all steps, (T, 1, B, H), as rows."""
        g = self.g
        if g.results[0][1] is None:  # only the last state is used
            return None
        out = g.squeeze(out, 1)
        if self.batch_first:
            out = g.transpose(out, [1, 0, 2])
        out.shapes = self._shapes(self.hidden)
        return g.reshape(out, g.shape)


def _by_recording(sizes: Any, count: int) -> list[tuple[int, ...]]:
    """The batch size of each step, in each recording."""
    if isinstance(sizes, Varying):
        return list(sizes.values)
    return [tuple(s.values[i] if isinstance(s, Varying) else s for s in sizes) for i in range(count)]


def _ordered(g: Builder, value: Value, order: tuple[int, ...]) -> Value:
    if len(order) == 1:
        return value
    parts = g.op("Split", value, outputs=len(order), axis=0, num_outputs=len(order))
    return g.op("Concat", *[parts[i] for i in order], axis=0)
