"""The rows of `graphs.py`, with CUDA graphs in both libraries."""

from __future__ import annotations

from benchmarks.rows.graphs import rows

ROWS = rows(both=True)
