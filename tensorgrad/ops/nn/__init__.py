"""What neural networks are made of: convolutions, pooling, normalisation, activations, attention, losses."""
