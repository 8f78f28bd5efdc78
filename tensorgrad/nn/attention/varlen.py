"""Attention among sequences of different lengths that lie one after another in one tensor, without padding."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import tensorgrad as torch
from tensorgrad.nn import functional as F
from tensorgrad.tensor import Tensor

__all__ = ["AuxRequest", "varlen_attn"]


class AuxRequest(NamedTuple):
    """What `varlen_attn` is asked to return besides its result.

    >>> from tensorgrad.nn.attention.varlen import AuxRequest
    >>> AuxRequest()
    AuxRequest(lse=False)
    """

    lse: bool = False


def varlen_attn(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
    *,
    return_aux: AuxRequest | None = None,
    scale: float | None = None,
    window_size: tuple[int, int] = (-1, -1),
    enable_gqa: bool = False,
    seqused_k: Tensor | None = None,
    block_table: Tensor | None = None,
    num_splits: int | None = None,
) -> Tensor:
    """Computes `scaled_dot_product_attention` for each of several sequences. PyTorch has it for GPUs only.

    Args:
        query: The queries of all sequences (total, heads, features).
        key, value: The keys and values of all sequences.
        cu_seq_q, cu_seq_k: Where the sequences begin, and the last one ends: one integer more than there are sequences.
        max_q, max_k: The greatest lengths.
        return_aux: Accepted if it asks for nothing.
        scale: What the products are multiplied by: 1/√features if it is not given.
        window_size: How many keys before and after its own place a query looks at; -1: all. (-1, 0) is causal. The last
            query stands at the last key.
        enable_gqa: Whether several heads of the query may share one of the key's.
        seqused_k: How many keys of each sequence count; by default all.
        block_table, num_splits: For kernels of GPUs: the first is refused, the second changes nothing.

    Raises:
        ValueError: If the numbers of heads do not fit.
        NotImplementedError: For logarithms of sums (`return_aux`) and keys in pages (`block_table`).

    >>> from tensorgrad.nn.attention.varlen import varlen_attn
    >>> x = torch.arange(6.0).reshape(3, 1, 2)  # a sequence of one, and one of two
    >>> begins = torch.tensor([0, 1, 3], dtype=torch.int32)
    >>> varlen_attn(x, x, x, begins, begins, 2, 2, window_size=(-1, 0))[:2].flatten()
    tensor([0., 1., 2., 3.])
    """
    if block_table is not None or cu_seq_k is None:
        raise NotImplementedError("varlen_attn(): keys in pages (block_table) are not included: pass cu_seq_k")
    if return_aux is not None and return_aux.lse:
        raise NotImplementedError("varlen_attn(): the logarithms of sums (return_aux) are not included")
    heads, shared = query.size(1), key.size(1)
    if not enable_gqa and heads != shared:
        raise ValueError(
            f"Expect query and key/value to have the same number of heads but got Hq={heads} and Hkv={shared}. "
            "Try setting enable_gqa=True for GQA."
        )
    if heads % shared:
        raise ValueError(
            f"Expect number of query heads to be a multiple of kv heads for GQA but got Hq={heads} and Hkv={shared}."
        )
    starts, key_starts = cu_seq_q.tolist(), cu_seq_k.tolist()
    used = [end - start for start, end in pairwise(key_starts)] if seqused_k is None else seqused_k.tolist()
    results = []
    for (first, last), begin, length in zip(pairwise(starts), key_starts, used):
        q, k, v = (part.transpose(0, 1) for part in (query[first:last], key[begin:][:length], value[begin:][:length]))
        mask = _seen(last - first, length, window_size, query.device)
        found = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale, enable_gqa=enable_gqa)
        results.append(found.transpose(0, 1))
    return torch.cat(results)


def _seen(queries: int, keys: int, window: tuple[int, int], device: torch.device) -> Tensor | None:
    """Which keys each query looks at, as a matrix of booleans; None: all."""
    before, after = window
    if before < 0 and after < 0:
        return None
    place = torch.arange(queries, device=device)[:, None] + (keys - queries)
    other = torch.arange(keys, device=device)
    seen = torch.ones(queries, keys, dtype=torch.bool, device=device)
    if before >= 0:
        seen = seen & (other >= place - before)
    if after >= 0:
        seen = seen & (other <= place + after)
    return seen
