"""What an accelerator family decides before the model is looked at."""

from __future__ import annotations

from perilune.plan.resolve.state import Resolution


def hardware_runtime(r: Resolution) -> None:
    """Hardware runtime."""


def device_backends(r: Resolution) -> None:
    """Device backends."""


def symmetric_memory_support(r: Resolution) -> None:
    """Symmetric memory support."""


def platform_defaults(r: Resolution) -> None:
    """Platform defaults."""


def amd_specifics(r: Resolution) -> None:
    """Amd specifics."""


def nccl_pre_warm(r: Resolution) -> None:
    """Nccl pre warm."""


def kernel_plugins(r: Resolution) -> None:
    """Kernel plugins."""
