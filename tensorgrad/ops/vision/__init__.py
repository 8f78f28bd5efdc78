"""Ops on boxes and regions of images, and deformable convolution: those that torchvision brings compiled.

PyTorch itself does not have them, so `import tensorgrad` does not load them: `compat/torchvision_operators.py` does.
"""
