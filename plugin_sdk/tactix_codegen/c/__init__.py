"""Text of C kernels: arguments, scalar expressions, loops, copies, tiles, epilogues."""
