"""What ops do with distributed tensors."""
