"""What the terminal shows and sends: a progress bar on standard error, and Ctrl-C as a wish to stop."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

Show = Callable[[int, str], None]


@contextmanager
def progress_bar(label: str, total: int, enabled: bool | None = None) -> Iterator[Show]:
    """Yields show(done, note); silent where not enabled, by default where standard error is no terminal."""
    if not (sys.stderr.isatty() if enabled is None else enabled):
        yield lambda done, note: None
        return
    columns = TextColumn(label), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[note]}")
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True)) as bar:
        task = bar.add_task(label, total=total, note="")
        yield lambda done, note: bar.update(task, completed=done, note=note)


class Interrupt:
    """Whether Ctrl-C was pressed."""

    requested = False


@contextmanager
def postponed_interrupt() -> Iterator[Interrupt]:
    """Turn the first Ctrl-C into `requested`, so that the work in hand is finished; the second one interrupts.

    Outside the main thread, where Python delivers no signals, nothing changes.
    """
    interrupt = Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return
    previous = signal.getsignal(signal.SIGINT)

    def request(number: int, frame: FrameType | None) -> None:
        if interrupt.requested:
            raise KeyboardInterrupt
        interrupt.requested = True

    signal.signal(signal.SIGINT, request)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, previous)
