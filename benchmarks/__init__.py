"""Benchmarks beside their peers: programs that a person runs, and what they share."""

import sys
from collections.abc import Callable


def command(main: Callable[[], None]) -> None:
    """Run a benchmark's `main`; bad input ends with one message and exit code 2, as the product's commands do."""
    try:
        main()
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
