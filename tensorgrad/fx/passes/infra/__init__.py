"""Passes over graphs, and what runs several of them in order."""
