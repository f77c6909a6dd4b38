"""``python -m tactix``."""

from tactix.cli import main

raise SystemExit(main())
