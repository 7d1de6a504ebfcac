"""A local profile: efficiencies that `perilune calibrate` fitted to a user's own results."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from perilune.errors import UnusableInput
from perilune.facts.hardware import platforms
from perilune.facts.timing import Efficiency
from perilune.files import read_capped, replace_file
from perilune.plan.display import counted
from perilune.plan.yaml_input import read_yaml
from perilune.rehearse.timing.basis import BOUNDS, Efficient

VERSION = 1
MOST_BYTES = 1 << 20


class Profile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One platform's efficiencies. `below` and `above` are factors of a predicted time."""

    perilune_profile: int
    platform: str
    efficiency: Efficiency
    below: float
    above: float
    results: int
    sources: tuple[str, ...] = ()

    def to_yaml(self) -> bytes:
        """The profile as `read_profile` reads it."""
        import yaml

        head = b"# Written by `perilune calibrate`; `perilune rehearse --profile` takes it.\n"
        return head + yaml.safe_dump(msgspec.to_builtins(self), sort_keys=False).encode()


def default_path(platform: str) -> Path:
    """Where a platform's profile lies unless it is put elsewhere: the user's configuration folder."""
    base = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(base).expanduser() / "perilune" / f"timing-{platform}.yaml"


def write_profile(profile: Profile, path: Path) -> None:
    """Write a profile, its folder too; raises UnusableInput where that fails."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror or str(error)
        raise UnusableInput(f"The folder cannot be made: {reason.lower()}.", where=str(path.parent)) from None
    replace_file(path, profile.to_yaml())


def read_profile(path: Path) -> Profile:
    """A profile from disk; raises UnusableInput naming a field that cannot be used."""
    value = read_yaml(read_capped(path, MOST_BYTES), str(path))
    try:
        found = msgspec.convert(value, Profile)
    except msgspec.ValidationError as error:
        raise UnusableInput(f"This is no profile: {error}.", where=str(path)) from None
    if found.perilune_profile != VERSION:
        raise UnusableInput(f"It is of version {found.perilune_profile}, not {VERSION}.", where=str(path))
    if found.platform not in platforms():
        raise UnusableInput(f"platform {found.platform[:40]!r} is not known.", where=str(path))
    for name, (low, high) in BOUNDS.items():
        value = getattr(found.efficiency, name)
        if not low <= value <= high:
            raise UnusableInput(f"efficiency.{name} is {value:g}, outside {low:g} to {high:g}.", where=str(path))
    if not 0 < found.below <= 1 <= found.above < 100:
        raise UnusableInput("below and above are no factors around 1.", where=str(path))
    return found


def calibrated(platform: str, path: Path | None = None) -> Efficient | None:
    """The efficiencies of a user's profile: of `path`, else of the default place, else None.

    Raises UnusableInput for a file that cannot be used, or that is of another platform.
    """
    place = path or default_path(platform)
    if path is None and not place.exists():
        return None
    profile = read_profile(place)
    if profile.platform != platform:
        raise UnusableInput(f"This profile is of {profile.platform}, not of {platform}.", where=str(place))
    said = f"calibrated to {counted(profile.results, 'result')} of your own ({place})"
    return Efficient(profile.efficiency, "calibrated", (profile.below, profile.above), said)
