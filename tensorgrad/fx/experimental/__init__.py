"""`torch.fx.experimental`: of it, `proxy_tensor`."""
