"""What this process is known to have asked of the allocator, for what the allocator itself does not show."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from colab_alloc.conf.conf import AllocConf
from colab_alloc.conf.options import Value
from colab_alloc.conf.predict import OLDEST_PREDICTED, predict
from colab_alloc.conf.version import release


class Ledger:
    """The configuration texts the allocator is known to have read, and what only a restart can bring.

    Attributes:
        texts: every text known to have been read by the allocator of this process.
        settings: what those texts set, later ones over earlier ones.
        after_restart: what was asked for too late for this process.
        lock: held while settings are changed, and while they are read.
        listeners: called when settings have been changed.
    """

    def __init__(self) -> None:
        self.texts: set[str] = set()
        self.settings: dict[str, Value] = {}
        self.after_restart = AllocConf()
        self.lock = threading.RLock()
        self.listeners: list[Callable[[], None]] = []

    def note(self, text: str, torch: str) -> None:
        """Remember that the allocator of that PyTorch read this text."""
        settings = as_read(text, torch)
        if settings is not None:
            self.texts.add(text)
            self.settings |= settings


LEDGER: Final = Ledger()


def as_read(text: str, torch: str) -> dict[str, Value] | None:
    """Return the settings that PyTorch made of a text it accepted; None where that is not known."""
    if release(torch) < OLDEST_PREDICTED:
        return None
    verdict = predict(text, torch)
    return verdict.settings if verdict.outcome == "accepted" else None
