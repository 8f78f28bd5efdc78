"""What several programs share. Like the programs, it knows nothing of what `import torch` is."""
