"""What became of a file, kept from one build to the next under a key of everything that it depends on."""

import hashlib
import json
import sys
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path

from build.cache import Cache, key_of


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the minifier made of one module."""

    data: bytes
    passes: tuple[str, ...]
    """Names that lead from the original to `data`; () where `data` is the original."""
    refused: str | None
    """Why the original was kept; None where it was not, or was asked for."""
    packed: tuple[int, int]
    """Deflated bytes of the original and of `data`."""


def outcome_key(original: bytes, passes: tuple[str, ...]) -> str:
    """The key of a text, what is to be done with it, and what does it."""
    return key_of("minify", _tools(), ",".join(passes), original)


def load(cache: Cache, key: str) -> Outcome | None:
    """The outcome kept under this key; None where there is none."""
    entry = cache.get(key)
    if entry is None:
        return None
    header, _, data = entry.partition(b"\n")
    facts = json.loads(header)
    before, after = facts["packed"]
    return Outcome(data, tuple(facts["passes"]), facts["refused"], (before, after))


def save(cache: Cache, key: str, outcome: Outcome) -> None:
    """Keeps the outcome for the next build."""
    facts = {"passes": outcome.passes, "refused": outcome.refused, "packed": outcome.packed}
    cache.put(key, json.dumps(facts).encode() + b"\n" + outcome.data)


@cache
def _tools() -> str:
    """The minifier's own sources, the printer's version, and the Python whose grammar parses and prints."""
    own = hashlib.sha256()
    here = Path(__file__).parent
    for path in sorted(here.rglob("*.py")):
        own.update(path.relative_to(here).as_posix().encode() + b"\0" + path.read_bytes())
    return f"{own.hexdigest()} {version('python-minifier')} {sys.version_info[:3]}"
