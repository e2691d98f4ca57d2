"""What this process is known to have asked of the allocator, for what the allocator itself does not show."""

from __future__ import annotations

from typing import Final

from colab_alloc.conf.conf import AllocConf
from colab_alloc.conf.problem import AllocConfError


class Ledger:
    """The configuration texts the allocator is known to have read, and what only a restart can bring.

    Attributes:
        texts: every text known to have been read by the allocator of this process.
        settings: what those texts set, later ones over earlier ones.
        after_restart: what was asked for too late for this process.
    """

    def __init__(self) -> None:
        self.texts: set[str] = set()
        self.settings = AllocConf()
        self.after_restart = AllocConf()

    def note(self, text: str) -> None:
        """Remember that the allocator read this text, if it is one that we can read as well."""
        conf = read(text)
        if conf is not None:
            self.texts.add(text)
            self.settings = self.settings | conf


LEDGER: Final = Ledger()


def read(text: str) -> AllocConf | None:
    """Read a text that need not be ours; None when only PyTorch can make sense of it."""
    try:
        return AllocConf.parse(text)
    except AllocConfError:
        return None
