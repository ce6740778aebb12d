"""What distributions offer by entry points is in the snapshot too.

torch asks all distributions for back ends that they bring along, one file of each. The files belong to the installed
distributions as their modules do, and change with them. importlib.metadata asks as ever; only where the text comes from
is changed, in the one method that reads it, and only for that file of the recorded distributions.
"""

from types import FunctionType, ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    # by folder of a distribution's information: the text; None where it has none
    Texts = dict[str, str | None]

MODULE = "importlib.metadata"
FILE = "entry_points.txt"
TEXTS, READER = "_recorded_entry_points", "_read_text_of_file"
READ_TEXT = {"3.11": "926ac358443deef9", "3.12": "c4c695c46bf85c95", "3.13": "40eb07355ccdb312"}


def record(sites: "Sequence[str]") -> "Texts":
    """Of all distributions in these folders, as importlib.metadata reads them."""
    import os

    from trainer_boot import parallel

    found: Texts = {}
    for site in sites:
        names = sorted(name for name in os.listdir(site) if name.endswith(".dist-info"))
        texts = parallel.each(_read, [f"{site}/{name}/{FILE}" for name in names])
        found.update({f"{site}/{name}": texts[number] for number, name in enumerate(names) if number in texts})
    return {path: text for path, text in found.items() if text != ""}


def serve(module: ModuleType, texts: "Texts") -> None:
    """From importlib.metadata, once it was executed. Where its method is not the known one, nothing is changed."""
    from trainer_boot.overlays.known import Unknown, need_function

    try:
        function = need_function(module.PathDistribution, "read_text", READ_TEXT)
    except (Unknown, AttributeError):
        return
    setattr(module, READER, FunctionType(function.__code__, vars(module), function.__name__, function.__defaults__))
    setattr(module, TEXTS, texts)
    function.__code__ = _read_text.__code__


def _read_text(self, filename):  # type: ignore[no-untyped-def]  # runs in importlib.metadata, with its names
    if filename == "entry_points.txt":
        place = str(self._path)
        if place in _recorded_entry_points:  # type: ignore[name-defined] # noqa: F821
            return _recorded_entry_points[place]  # type: ignore[name-defined] # noqa: F821
    return _read_text_of_file(self, filename)  # type: ignore[name-defined] # noqa: F821


def _read(path: str) -> str | None:
    """None where there is no such file; "" where it can't be told, and has to be asked for each time."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return ""
