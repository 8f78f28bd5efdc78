"""Linear algebra: products, factorisations, solvers, norms of matrices."""
