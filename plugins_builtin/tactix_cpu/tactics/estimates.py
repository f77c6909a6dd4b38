"""What estimates of tactics in C take a processor to be.

An estimate puts candidates in order, and decides alone only where nothing may be measured. What all
of them share cancels out among kernels of C; it counts beside other sources, and beside layers that
only move data. Figures named below stand in the pack's README, "What the numbers rest on".
"""

from __future__ import annotations

CLOCK = 3e9
"""Cycles per second of a core. Round; the FMA peak of the prototype's Zen 5, 266 GFLOP/s at 64 FLOP
a cycle, makes 4.2e9, and many servers run slower than that.
"""
MEMORY = 4e10
"""Bytes per second that one core reads from memory: 38 to 52 GB/s on the prototype's Zen 5. Threads
do not multiply it in estimates: two cores there read 49 GB/s, where one reads 42.
"""
START = 5e-7
"""Seconds that a kernel of one launch takes beside its work, so that of two ways the one with fewer
launches wins where there is hardly any work. Kernels with launches before, or tiles to set up, take
a multiple. No measurement of it is on record; a barrier between launches takes 4.5e-8 (Zen 5).
"""
STREAM = 3.5
"""Bytes of packed weights that come from memory per cycle while tiles multiply with them: the first
tile of a panel waits for them. At ``CLOCK`` a quarter of ``MEMORY``. No measurement of it is on
record.
"""
