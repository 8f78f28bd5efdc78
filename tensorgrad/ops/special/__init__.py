"""Functions of mathematical physics and statistics, elementwise."""
