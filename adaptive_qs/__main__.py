"""`python -m adaptive_qs`, and the console script."""

import sys


def main() -> int:
    """Run the command line; an interrupt while it is loaded ends the process in silence."""
    try:
        from adaptive_qs.cli.entry import main as run

        return run()
    except KeyboardInterrupt:  # before the command line has its own handlers
        return 130


if __name__ == "__main__":
    sys.exit(main())
