"""`torch._functorch`: what libraries import from it. Its functions are `torch.func`'s."""
