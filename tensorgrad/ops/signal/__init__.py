"""Fourier transforms, spectrograms and windows."""
