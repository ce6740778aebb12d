"""Bases whose heirs live in another module."""
from typing import NamedTuple, Protocol, TypedDict, runtime_checkable


class Settings(TypedDict):
    """Direct heir."""

    path: str


class Size(NamedTuple):
    """Fields come from annotations, and so do defaults."""

    rows: int
    columns: int = 3


@runtime_checkable
class Stepped(Protocol):
    steps: int
