"""Results of load tools: sglang.bench_serving, aiperf and guidellm."""

from __future__ import annotations

from perilune.rehearse.calibration.results.read import read_results
from perilune.rehearse.calibration.results.result import Result

__all__ = ["Result", "read_results"]
