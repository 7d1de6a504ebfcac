"""Disaggregation: prefill and decode roles, and vision encoders on servers of their own."""

from __future__ import annotations

from perilune.plan.resolve.pd.encoder import encoder_disaggregation
from perilune.plan.resolve.pd.roles import disaggregation

__all__ = ["disaggregation", "encoder_disaggregation"]
