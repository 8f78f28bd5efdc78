"""Benchmarks. They report figures and are not tests: each alternates with torch in one run and prints the ratio."""
