"""Inner loops in the processor's vector registers, and how their operands are laid out."""
