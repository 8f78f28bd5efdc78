"""Libraries built on PyTorch, run with tensorgrad in place of torch: see docs/ecosystem.md."""
