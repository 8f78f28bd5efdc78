"""Inner loops in the processor's vector registers, and their operands' layout."""
