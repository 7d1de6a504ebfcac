"""From a choice of recipe to a deployment and its commands."""

from perilune.plan.compose.choice import Choice, Override, parse_env, parse_knob, parse_set, parse_unset
from perilune.plan.compose.commands import CommandBlock, commands, placeholders_left
from perilune.plan.compose.compose import compose
from perilune.plan.compose.listing import RecipeRow, all_choices, recipes

__all__ = [
    "Choice",
    "CommandBlock",
    "Override",
    "RecipeRow",
    "all_choices",
    "commands",
    "compose",
    "parse_env",
    "parse_knob",
    "parse_set",
    "parse_unset",
    "placeholders_left",
    "recipes",
]
