"""What operations are, for kernels of any device: analysis of nodes, index arithmetic, geometry. No
text of kernels.
"""
