"""Is what an overlay is about to change the very thing that it was written for?

A function is known by a digest of its code: instructions, names, constants and signature, without file names and line
numbers. Instructions differ between minor versions of Python, so there is one digest for each.
"""

import sys
from types import CodeType, FunctionType

PROVEN_TORCH = ("2.15",)


class Unknown(Exception):
    """What is there is not what the overlay was written for; says how."""


def need_torch(version: str) -> None:
    """Unknown unless it is a version of torch that the overlays were proven on."""
    if ".".join(version.split(".")[:2]) not in PROVEN_TORCH:
        raise Unknown(f"proven on torch {', '.join(PROVEN_TORCH)}; this is {version}")


def need_function(place: object, name: str, digests: dict[str, str]) -> FunctionType:
    """The function `place.name`, if its code has one of the digests (Python version -> digest); else Unknown."""
    found = vars(place).get(name)
    where = f"{getattr(place, '__module__', None) or ''} {getattr(place, '__name__', place)}.{name}".strip()
    if not isinstance(found, FunctionType):
        raise Unknown(f"{where} is no plain function")
    need_code(found.__code__, where, digests)
    return found


def need_code(code: CodeType, where: str, digests: dict[str, str]) -> None:
    """Unknown unless the code is the one of the digest for this Python."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    if python not in digests:
        raise Unknown(f"not proven on Python {python}")
    found = digest(code)
    if found != digests[python]:
        raise Unknown(f"{where} is not the known one; its digest is {found}")


def need_source(path: str, digest: str) -> None:
    """Unknown unless the file has the digest."""
    from hashlib import sha256

    try:
        with open(path, "rb") as file:
            found = sha256(file.read()).hexdigest()[:16]
    except OSError as error:
        raise Unknown(f"the source cannot be read: {error}") from None
    if found != digest:
        raise Unknown(f"{path} is not the known one; its digest is {found}")


def digest(code: CodeType) -> str:
    """16 hex digits."""
    from hashlib import sha256

    return sha256(_text(code).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _text(value: object) -> str:
    """The same for the same code in every process: no addresses, no order of sets."""
    if isinstance(value, CodeType):
        parts = (
            value.co_name,
            value.co_argcount,
            value.co_posonlyargcount,
            value.co_kwonlyargcount,
            value.co_flags,
            value.co_names,
            value.co_varnames,
            value.co_freevars,
            value.co_cellvars,
            value.co_code,
            value.co_consts,
        )
        return f"code{_text(parts)}"
    if isinstance(value, tuple):
        return "(" + ",".join(map(_text, value)) + ")"
    if isinstance(value, frozenset):
        return "{" + ",".join(sorted(map(_text, value))) + "}"
    return repr(value)
