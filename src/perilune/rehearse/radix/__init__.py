"""SGLang's hybrid radix cache, over block ids: which prefixes are kept, and what they take of both pools."""

from perilune.rehearse.radix.cache import RadixCache
from perilune.rehearse.radix.claim import Claim
from perilune.rehearse.radix.key import Key

__all__ = ["Claim", "Key", "RadixCache"]
