"""Where strangers' kernels bid: they are tried in a process of their own, and who fails there is
kept out.
"""
