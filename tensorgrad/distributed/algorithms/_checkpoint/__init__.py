"""Modules whose activations are computed again in the backward pass; see `checkpoint_wrapper`."""
