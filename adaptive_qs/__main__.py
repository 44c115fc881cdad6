"""`python -m adaptive_qs`."""

from __future__ import annotations

import sys

if __name__ == "__main__":
    try:
        from adaptive_qs.cli.entry import main

        sys.exit(main())
    except KeyboardInterrupt:  # before the command line has its own handlers
        sys.exit(130)
