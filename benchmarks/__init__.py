"""Benchmarks: figures, never tests. Each compares with torch in one run, alternating, and prints the ratio."""
