"""Presenter: pictures of engines, networks and the like, for notebooks."""

from __future__ import annotations

from abc import ABC, abstractmethod


class Presenter(ABC):
    """``key``: ``namespace.name``. Asked when a notebook shows what stands at the end of a cell,
    and not before.
    """

    key: str

    @abstractmethod
    def html(self, subject: object) -> str | None:
        """A picture as an HTML fragment without scripts, which loads nothing; None for a subject
        that it does not know.

        Names are anybody's: they are escaped. What it raises is told as a warning, and the next
        presenter is asked.
        """
