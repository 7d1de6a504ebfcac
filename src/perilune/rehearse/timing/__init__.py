"""Step times of a planned server: bytes and operations counted from its geometry, at fitted efficiencies."""

from __future__ import annotations

from perilune.rehearse.timing.basis import Efficient, efficient
from perilune.rehearse.timing.server import ServerCosts, costs_of

__all__ = ["Efficient", "ServerCosts", "costs_of", "efficient"]
