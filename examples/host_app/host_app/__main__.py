"""``limit-audio IN.npy OUT.npy``: float32 arrays (channels, samples)."""

import sys

import numpy as np

from host_app.limiter import Limiter


def main() -> None:
    given, made = sys.argv[1:]
    np.save(made, Limiter()(np.load(given)))


if __name__ == "__main__":
    main()
