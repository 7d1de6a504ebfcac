"""Property tests try the same examples every time on any machine; `--hypothesis-profile default` varies them."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("steady", deadline=None, derandomize=True)
settings.load_profile("steady")
