"""`torch.nn.attention.flex_attention`: attention whose scores a function of yours changes or masks.

It is made of ordinary ops: all scores are computed, and those that are masked count as minus infinity. A `BlockMask`
says which blocks of scores are masked altogether, as PyTorch's kernels need to know.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorgrad as torch
from tensorgrad.tensor import Tensor

__all__ = [
    "AuxOutput", "AuxRequest", "BlockMask", "FlexKernelOptions", "and_masks", "create_block_mask", "create_mask",
    "flex_attention", "noop_mask", "or_masks",
]  # fmt: skip

_DEFAULT_SPARSE_BLOCK_SIZE = 128
# The types of the functions that change or mask scores, by PyTorch's names: libraries import them for annotations.
_score_mod_signature = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
_mask_mod_signature = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
_FIELDS = (
    "kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices", "q_num_blocks", "q_indices",
    "full_q_num_blocks", "full_q_indices",
)  # fmt: skip


class AuxRequest(NamedTuple):
    """What `flex_attention` returns besides its result: the log-sum-exp of each row of scores, its largest score."""

    lse: bool = False
    max_scores: bool = False


class AuxOutput(NamedTuple):
    """What was requested; None for what was not."""

    lse: Tensor | None = None
    max_scores: Tensor | None = None


class FlexKernelOptions(dict):
    """Options for PyTorch's kernels. They are accepted and have no effect."""


def noop_mask(batch: Any, head: Any, token_q: Any, token_kv: Any) -> Tensor:
    """The mask that masks nothing.

    >>> from tensorgrad.nn.attention.flex_attention import noop_mask
    >>> noop_mask(0, 0, 1, 2)
    tensor(True)
    """
    return torch.ones((), dtype=torch.bool)


def and_masks(*mask_mods: Callable) -> Callable:
    """Returns the mask that keeps what all masks keep.

    >>> from tensorgrad.nn.attention.flex_attention import and_masks, create_mask
    >>> causal, near = lambda b, h, q, k: q >= k, lambda b, h, q, k: q - k < 2
    >>> create_mask(and_masks(causal, near), 1, 1, 3, 3).int()[0, 0]
    tensor([[1, 0, 0],
            [1, 1, 0],
            [0, 1, 1]], dtype=torch.int32)
    """
    if not all(map(callable, mask_mods)):
        raise RuntimeError(f"All inputs should be callable mask_mods: {mask_mods}")

    def and_mask(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        result = b.new_ones((), dtype=torch.bool)
        for mask in mask_mods:
            result = result & mask(b, h, q_idx, kv_idx)
        return result

    return and_mask


def or_masks(*mask_mods: Callable) -> Callable:
    """Returns the mask that keeps what any mask keeps.

    >>> from tensorgrad.nn.attention.flex_attention import create_mask, or_masks
    >>> create_mask(or_masks(lambda b, h, q, k: q > k, lambda b, h, q, k: q == k), 1, 1, 2, 2).int()[0, 0]
    tensor([[1, 0],
            [1, 1]], dtype=torch.int32)
    """
    if not all(map(callable, mask_mods)):
        raise RuntimeError(f"All inputs should be callable mask_mods: {mask_mods}")

    def or_mask(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        result = b.new_zeros((), dtype=torch.bool)
        for mask in mask_mods:
            result = result | mask(b, h, q_idx, kv_idx)
        return result

    return or_mask


def _for_all(function: Callable, with_score: bool) -> Callable:
    """A function of a score's place (and, before that, of the score), for all of them at once."""
    first = (0,) if with_score else ()
    for dims in ((None, None, None, 0), (None, None, 0, None), (None, 0, None, None), (0, None, None, None)):
        function = torch.vmap(function, in_dims=(*first, *dims))
    return function


def create_mask(mod_fn: Callable, B: int | None, H: int | None, Q_LEN: int, KV_LEN: int, device: Any = None) -> Tensor:
    """Returns a mask as a tensor of booleans, `(B, H, Q_LEN, KV_LEN)`; or scores, of a function that changes zeros.

    >>> from tensorgrad.nn.attention.flex_attention import create_mask
    >>> create_mask(lambda b, h, q, k: q >= k, None, None, 2, 2)
    tensor([[[[ True, False],
              [ True,  True]]]])
    """
    import inspect

    places = [torch.arange(n or 1, device=device) for n in (B, H, Q_LEN, KV_LEN)]
    parameters = [p for p in inspect.signature(mod_fn).parameters.values() if p.default is p.empty]
    shape = tuple(len(p) for p in places)
    if len(parameters) == 5:  # of a score and its place
        scores = torch.zeros(shape, device=device)
        return torch.where(_for_all(mod_fn, True)(scores, *places).isneginf(), False, True)
    mask = _for_all(mod_fn, False)(*places)
    return mask.expand(shape) if isinstance(mask, Tensor) else torch.full(shape, bool(mask), device=device)


class BlockMask:
    """Which blocks of scores are masked altogether, in part, or not at all. `create_block_mask` makes it.

    For each row of blocks, `kv_num_blocks` is the number of those masked in part, and `kv_indices` begins with their
    columns; `full_kv_num_blocks` and `full_kv_indices` are those not masked; the fields with `q` are by column.
    """

    def __init__(
        self,
        seq_lengths: tuple[int, int],
        kv_num_blocks: Tensor,
        kv_indices: Tensor,
        full_kv_num_blocks: Tensor | None,
        full_kv_indices: Tensor | None,
        q_num_blocks: Tensor | None,
        q_indices: Tensor | None,
        full_q_num_blocks: Tensor | None,
        full_q_indices: Tensor | None,
        BLOCK_SIZE: tuple[int, int],
        mask_mod: Callable,
    ) -> None:
        if kv_indices.dim() < 2:
            raise RuntimeError("BlockMask must have at least 2 dimensions")
        self.seq_lengths, self.BLOCK_SIZE, self.mask_mod = seq_lengths, BLOCK_SIZE, mask_mod
        self.kv_num_blocks, self.kv_indices = kv_num_blocks, kv_indices
        self.full_kv_num_blocks, self.full_kv_indices = full_kv_num_blocks, full_kv_indices
        self.q_num_blocks, self.q_indices = q_num_blocks, q_indices
        self.full_q_num_blocks, self.full_q_indices = full_q_num_blocks, full_q_indices

    @classmethod
    def from_kv_blocks(
        cls,
        kv_num_blocks: Tensor,
        kv_indices: Tensor,
        full_kv_num_blocks: Tensor | None = None,
        full_kv_indices: Tensor | None = None,
        BLOCK_SIZE: int | tuple[int, int] = _DEFAULT_SPARSE_BLOCK_SIZE,
        mask_mod: Callable | None = None,
        seq_lengths: tuple[int, int] | None = None,
        compute_q_blocks: bool = True,
    ) -> BlockMask:
        """Makes one of the rows of blocks; the columns follow from them."""
        if (full_kv_num_blocks is None) is not (full_kv_indices is None):
            raise AssertionError("full_kv_num_blocks and full_kv_indices must be both provided or omitted")
        size = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else BLOCK_SIZE
        lengths = seq_lengths or (kv_indices.shape[-2] * size[0], kv_indices.shape[-1] * size[1])
        columns: Any = (None, None)
        full_columns: Any = (None, None)
        if compute_q_blocks:
            columns = _ordered(_dense(kv_num_blocks, kv_indices).transpose(-1, -2))
            if full_kv_num_blocks is not None and full_kv_indices is not None:
                full_columns = _ordered(_dense(full_kv_num_blocks, full_kv_indices).transpose(-1, -2))
        return cls(
            lengths,
            kv_num_blocks,
            kv_indices,
            full_kv_num_blocks,
            full_kv_indices,
            columns[0],
            columns[1],
            full_columns[0],
            full_columns[1],
            size,
            mask_mod or noop_mask,
        )

    def as_tuple(self, flatten: bool = True) -> tuple:
        """Returns the sequence lengths, the fields, the block size and the mask."""
        fields = tuple(getattr(self, name) for name in _FIELDS)
        if flatten:
            return (*self.seq_lengths, *fields, *self.BLOCK_SIZE, self.mask_mod)
        return (self.seq_lengths, *fields, self.BLOCK_SIZE, self.mask_mod)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the scores: batch, heads, and the two sequence lengths."""
        return (*self.kv_indices.shape[:-2], *self.seq_lengths)

    def numel(self) -> int:
        """Returns how many scores there are."""
        return math.prod(self.shape)

    def sparsity(self) -> float:
        """Returns what percentage of the scores is in blocks that are masked altogether."""
        blocks = int(self.kv_num_blocks.sum())
        if self.full_kv_num_blocks is not None:
            blocks += int(self.full_kv_num_blocks.sum())
        return 100 * (1 - blocks * math.prod(self.BLOCK_SIZE) / self.numel())

    def to_dense(self) -> Tensor:
        """Returns a tensor with a 1 for each block that is not masked altogether."""
        dense = _dense(self.kv_num_blocks, self.kv_indices)
        if self.full_kv_num_blocks is not None and self.full_kv_indices is not None:
            dense = dense | _dense(self.full_kv_num_blocks, self.full_kv_indices)
        return dense

    def _changed(self, change: Callable[[Tensor], Tensor]) -> BlockMask:
        given = [None if getattr(self, name) is None else change(getattr(self, name)) for name in _FIELDS]
        fields: Any = dict(zip(_FIELDS, given, strict=True))
        return BlockMask(self.seq_lengths, **fields, BLOCK_SIZE=self.BLOCK_SIZE, mask_mod=self.mask_mod)

    def __getitem__(self, index: Any) -> BlockMask:
        index = index if isinstance(index, tuple) else (index,)
        kept = tuple(slice(i, i + 1 or None) if isinstance(i, int) else i for i in index)
        return self._changed(lambda field: field[kept])

    def to(self, device: Any) -> BlockMask:
        """Returns it on another device."""
        return self._changed(lambda field: field.to(device))

    def to_string(self, grid_size: tuple[int, int] = (20, 20), limit: int = 4) -> str:
        """Returns a picture: a dark square for each block that is not masked altogether, for up to `limit` heads."""
        dense = self.to_dense()
        flat = dense.reshape(-1, *dense.shape[-2:])
        places = list(_places(dense.shape[:-2]))
        parts = []
        for place, blocks in zip(places[:limit], flat, strict=False):
            rows = "\n".join("".join("██" if value else "  " for value in row) for row in blocks.tolist())
            parts.append(f"{place}\n{rows}\n")
        more = "...\nTo print out more, set BlockMask.to_string(limit=N)\n" if len(places) > limit else ""
        return "\n".join(parts) + more

    def __str__(self) -> str:
        return f"BlockMask(shape={self.shape}, sparsity={self.sparsity():.2f}%, \n{self.to_string()})"

    def __repr__(self) -> str:
        arguments = [f"{name}={None if value is None else value.shape}" for name, value in
                ((name, getattr(self, name)) for name in _FIELDS)]  # fmt: skip
        lines = ",\n    ".join([*arguments, f"BLOCK_SIZE={self.BLOCK_SIZE}", f"shape={self.shape}"])
        return f"BlockMask(\n    {lines},\n    sparsity={self.sparsity():.2f}%,\n    mask_mod={self.mask_mod}\n)"


def _places(shape: Any) -> Any:
    import itertools

    return itertools.product(*(range(n) for n in shape))


def _ordered(dense: Tensor) -> tuple[Tensor, Tensor]:
    """For each row the number of ones, and the columns, those with ones first."""
    order = torch.argsort(dense.to(torch.int32), dim=-1, descending=True, stable=True)
    return dense.sum(-1).to(torch.int32), order.to(torch.int32)


def _dense(count: Tensor, indices: Tensor) -> Tensor:
    """The reverse."""
    columns = torch.arange(indices.shape[-1], device=indices.device)
    listed = (columns < count.unsqueeze(-1)).to(torch.int32)
    return torch.zeros(indices.shape, dtype=torch.int32, device=indices.device).scatter(-1, indices.long(), listed)


def create_block_mask(
    mask_mod: Callable,
    B: int | None,
    H: int | None,
    Q_LEN: int,
    KV_LEN: int,
    device: Any = None,
    BLOCK_SIZE: int | tuple[int, int] = _DEFAULT_SPARSE_BLOCK_SIZE,
    _compile: bool = False,
    separate_full_blocks: bool = True,
) -> BlockMask:
    """Makes a `BlockMask` of a function that says which scores are kept.

    Args:
        mask_mod: `mask_mod(batch, head, query, key)` returns whether a score is kept, for 0-dimensional tensors.
        B, H: batch and heads; None if the mask is the same for all.
        Q_LEN, KV_LEN: the lengths of the sequences.
        device: where its fields are.
        BLOCK_SIZE: the size of the blocks, or both.

    >>> from tensorgrad.nn.attention.flex_attention import create_block_mask
    >>> mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, 4, 4, BLOCK_SIZE=2)
    >>> mask.shape, mask.sparsity(), mask.to_dense().tolist()
    ((1, 1, 4, 4), 25.0, [[[[1, 0], [1, 1]]]])
    """
    size = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else BLOCK_SIZE
    mask = create_mask(mask_mod, B, H, Q_LEN, KV_LEN, device)
    mask = torch.nn.functional.pad(mask.to(torch.int32), (0, -KV_LEN % size[1], 0, -Q_LEN % size[0]))
    b, h, rows, columns = mask.shape
    kept = mask.reshape(b, h, rows // size[0], size[0], columns // size[1], size[1]).sum((3, 5))
    full = kept == size[0] * size[1]
    part = (kept > 0) & ~full if separate_full_blocks else kept > 0
    count, order = _ordered(part)
    whole: Any = _ordered(full) if separate_full_blocks else (None, None)
    return BlockMask.from_kv_blocks(count, order, whole[0], whole[1], size, mask_mod, (Q_LEN, KV_LEN))


def _unmasked(block_mask: BlockMask, scores: Tensor) -> Tensor:
    """Which scores are kept, `(B, H, Q, KV)` or smaller."""
    q_len, kv_len = scores.shape[-2:]
    blocks = block_mask.to_dense().bool()
    for dim, size in zip((-2, -1), block_mask.BLOCK_SIZE, strict=True):
        blocks = blocks.repeat_interleave(size, dim)
    b, h = scores.shape[:2]
    mask = create_mask(block_mask.mask_mod, b, h, q_len, kv_len, scores.device)
    return blocks[..., :q_len, :kv_len].to(scores.device) & mask


def flex_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Callable | None = None,
    block_mask: BlockMask | None = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: Any = None,
    *,
    return_aux: AuxRequest | None = None,
) -> Any:
    """Computes attention, softmax(query keyᵀ · scale) value, with scores that `score_mod` changes.

    Args:
        query: `(B, Hq, L, E)`.
        key: `(B, Hkv, S, E)`.
        value: `(B, Hkv, S, Ev)`.
        score_mod: `score_mod(score, batch, head, query, key)` returns a score, for 0-dimensional tensors.
        block_mask: which scores are masked.
        scale: the factor of the scores; by default 1/√E.
        enable_gqa: whether `Hq` may be a multiple of `Hkv`: each head of keys serves several of queries.
        return_lse: returns the logarithm of the sum of the exponentials of each row of scores, too.
        kernel_options: has no effect.
        return_aux: what else to return.

    Returns:
        A tensor `(B, Hq, L, Ev)`; with `return_lse`, and the log-sum-exp `(B, Hq, L)`; with `return_aux`, and an
        `AuxOutput`. Rows that are masked altogether are 0.

    Raises:
        NotImplementedError: If the tensors do not have 4 dimensions.
        ValueError: If the numbers of heads differ, or the mask is for other lengths.

    >>> from tensorgrad.nn.attention.flex_attention import flex_attention
    >>> q = k = torch.zeros(1, 1, 2, 4)
    >>> v = torch.tensor([[[[1.0], [3.0]]]])
    >>> flex_attention(q, k, v, lambda score, b, h, q_idx, kv_idx: torch.where(q_idx >= kv_idx, score, -float("inf")))
    tensor([[[[1.],
              [2.]]]])
    """
    if not query.dim() == key.dim() == value.dim() == 4:
        raise NotImplementedError("NYI: query, key, and value must be 4D tensors")
    heads, kv_heads = query.shape[1], key.shape[1]
    if heads != kv_heads and not enable_gqa:
        raise ValueError(
            "Expect query and key/value to have the same number of heads "
            f"but got Hq={heads} and Hkv={kv_heads}. Try setting enable_gqa=True for GQA."
        )
    if heads % kv_heads:
        raise ValueError(
            f"Expect number of query heads to be a multiple of kv heads for GQA but got Hq={heads} and Hkv={kv_heads}."
        )
    q_len, kv_len = query.shape[-2], key.shape[-2]
    if block_mask is not None and block_mask.shape[-2:] != (q_len, kv_len):
        shape = block_mask.shape
        problem = f"block_mask was created for block_mask.shape={shape} but got q_len={q_len} and kv_len={kv_len}. "
        raise ValueError(f"{problem}Create a block mask for these lengths.")
    if heads != kv_heads:
        key, value = (t.repeat_interleave(heads // kv_heads, dim=1) for t in (key, value))
    wide = torch.float64 if query.dtype is torch.float64 else torch.float32
    scores = (query.to(wide) @ key.to(wide).transpose(-2, -1)) * (query.shape[-1] ** -0.5 if scale is None else scale)
    if score_mod is not None:
        places = [torch.arange(n, device=query.device) for n in scores.shape]
        scores = _for_all(score_mod, True)(scores, *places).to(wide)
    if block_mask is not None:
        scores = scores.masked_fill(~_unmasked(block_mask, scores), -math.inf)
    largest = scores.amax(-1, keepdim=True)
    empty = largest == -math.inf
    weights = torch.softmax(scores.masked_fill(empty, 0.0), -1).masked_fill(empty, 0.0)
    out = (weights @ value.to(wide)).to(query.dtype)
    request = return_aux or AuxRequest(lse=return_lse)
    lse = scores.logsumexp(-1) if request.lse else None
    if return_aux is not None:
        return out, AuxOutput(lse, largest.squeeze(-1) if request.max_scores else None)
    return (out, lse) if return_lse else out
