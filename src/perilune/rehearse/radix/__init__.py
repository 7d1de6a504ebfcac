"""SGLang's hybrid radix cache, over block ids: which prefixes are kept, and what they take of both pools."""

from perilune.rehearse.radix.cache import OutOfSlots, RadixCache
from perilune.rehearse.radix.claim import Claim
from perilune.rehearse.radix.key import Key
from perilune.rehearse.radix.snapshots import Snapshots

__all__ = ["Claim", "Key", "OutOfSlots", "RadixCache", "Snapshots"]
