"""Benchmarks beside their peers: programs that a person runs, and what they share."""

import argparse
import sys
from collections.abc import Callable


def command(main: Callable[[], None]) -> None:
    """Run a benchmark's `main`; bad input ends with one message and exit code 2, as the product's commands do."""
    try:
        main()
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


def positive(text: str) -> int:
    """A whole number of at least 1, for an argument parser's `type`."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: must be a whole number of at least 1")
    return int(text)


def duration(text: str) -> float:
    """A time above 0 and of at most a day, for an argument parser's `type`."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 86_400:
        raise argparse.ArgumentTypeError(f"{text!r}: must be seconds above 0, at most 86400")
    return value
