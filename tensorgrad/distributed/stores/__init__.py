"""Stores: keys and values that all processes of a job share."""
