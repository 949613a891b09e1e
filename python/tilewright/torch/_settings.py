"""Options of the backend, and what it says."""

from __future__ import annotations

import difflib
import logging
from typing import Any, Mapping

import torch

from .._errors import InvalidArgument

_COMPILE = ("threads", "isa", "numerics", "precision", "max_error", "keep_subnormals", "check_values",
            "orchestrate", "measure", "measure_seconds", "cache", "cache_folder", "log_severity_level")
_logger = logging.getLogger("tilewright")
_said: set[str] = set()


class Settings:
    """fallback: whether torch runs what Tilewright does not take. freeze: whether parameters become constants. Others:
    as of tilewright.compile; `threads` is torch.get_num_threads() if it is not given."""

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        given = dict(options or {})
        self.fallback = bool(given.pop("fallback", True))
        self.freeze = bool(given.pop("freeze", True))
        for name in given:
            if name not in _COMPILE:
                near = difflib.get_close_matches(name, [*_COMPILE, "fallback", "freeze"], 1)
                raise InvalidArgument(
                    f"the backend has no option '{name}'",
                    f"did you mean '{near[0]}'?" if near else f"the options: fallback, freeze, {', '.join(_COMPILE)}",
                )
        self._given = given

    def compile_options(self) -> dict[str, Any]:
        """Options of tilewright.compile."""
        return {"threads": torch.get_num_threads(), **self._given}


def log_once(text: str, more: str = "") -> None:
    """A warning of the logger `tilewright`, once in a process for each `text`."""
    if text not in _said:
        _said.add(text)
        _logger.warning(text + more)
