"""What cannot be converted."""

from __future__ import annotations

from .._errors import NotImplemented


class Unsupported(NotImplemented):
    """An operator, a type or a size that Tilewright does not take from torch."""
