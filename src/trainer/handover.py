"""The settings of a run, from the process that starts its ranks to those that it does not fork.

A rank that read the run file again would take what somebody has written into it since, at a restart hours later.
"""

import json

from trainer.config import Resolved, keys
from trainer.schema import Config


def to_text(resolved: Resolved) -> str:
    """Settings and where each came from."""
    values = {f"{section}.{key}": getattr(getattr(resolved.config, section), key) for section, key, _ in keys()}
    return json.dumps([values, resolved.origins], default=str)


def from_text(text: str) -> Resolved:
    """What `to_text` made text of."""
    values, origins = json.loads(text)
    config = Config()
    for name, value in values.items():
        section, _, key = name.partition(".")
        setattr(getattr(config, section), key, value)
    return Resolved(config, origins)
