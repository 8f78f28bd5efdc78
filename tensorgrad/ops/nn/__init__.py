"""Building blocks of neural networks: convolutions, pooling, normalization, activations, attention, losses."""
