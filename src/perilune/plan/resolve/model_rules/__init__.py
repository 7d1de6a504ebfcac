"""What an architecture decides: defaults, rewrites and refusals of its own.

Source: SGLang 0.5.23 `arg_groups/model_hook.py` and `arg_groups/model_overrides`. A new architecture is one
entry of `RULES` in `dispatch.py`, and a module where it needs rules that no other has.
"""

from perilune.plan.resolve.model_rules.dispatch import model_capability, model_specific

__all__ = ["model_capability", "model_specific"]
