"""`python -m adaptive_qs`."""

import sys

if __name__ == "__main__":
    try:
        from adaptive_qs.cli import main

        sys.exit(main())
    except KeyboardInterrupt:  # before the command line has its own handlers
        sys.exit(130)
