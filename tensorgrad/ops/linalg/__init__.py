"""Linear algebra: products, factorizations, solvers, matrix norms."""
