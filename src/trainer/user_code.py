"""Loads what a run file names as `file.py:name` or `package.module:name`."""

import difflib
import hashlib
import importlib
import importlib.util
import os
import re
import sys
import sysconfig
import traceback
from pathlib import Path
from types import ModuleType

from trainer import startup
from trainer.errors import UserError

_OURS = str(Path(__file__).parent) + os.sep
_BOOT = str(Path(__file__).parent.parent / "trainer_boot") + os.sep
_LIBRARY = sysconfig.get_path("stdlib") + os.sep
_PACKAGES = sysconfig.get_path("purelib") + os.sep


def load_object(spec: str, what: str) -> object:
    """The object that `spec` names; `what` is the setting, named in errors.

    A file is relative to the current folder. Its module is registered in `sys.modules` under the file's own name (a
    longer one where that name is taken), and its folder goes to the front of `sys.path`, as Python does for a script,
    so that modules beside it can be imported and its objects can be pickled for spawned processes. Under `-P` and `-I`
    Python does not do that for a script, and neither do we: only what the setting names is loaded.

    Raises UserError (status 2) for every mistake: no colon, no such file, module or name, an exception on import.
    """
    place, colon, name = spec.rpartition(":")
    if not colon or not place or not name:
        raise UserError(
            f"{what} = {spec!r} does not say what to load",
            f'Write {what} = "my_code.py:name" or "package.module:name".',
            2,
        )
    if place.endswith(".py") or os.sep in place or "/" in place:
        module = _load_file(place, spec, what)
    else:
        module = _load_module(place, spec, what)
    return _find(module, name, place, what)


def _load_file(place: str, spec: str, what: str) -> ModuleType:
    path = Path(place).expanduser().resolve()
    if not path.is_file():
        raise UserError(
            f"{what} = {spec!r}: there is no file {path}",
            "Correct the path; it is relative to the current directory.",
            2,
        )
    name = _module_name(path)
    loaded = sys.modules.get(name)
    if loaded is not None:
        return loaded
    folder = str(path.parent)
    if folder not in sys.path and startup.script_folder_counts():
        sys.path.insert(0, folder)
    importlib.invalidate_caches()
    found = importlib.util.spec_from_file_location(name, path)
    if found is None or found.loader is None:
        raise UserError(f"{what} = {spec!r}: {path} is not a Python file", "Name a file that ends in .py.", 2)
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module
    try:
        found.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise _import_failed(error, str(path), spec, what) from error
    return module


def _module_name(path: Path) -> str:
    """The file's name without `.py`; with a digest of its path where another module has or may want that name."""
    plain = re.sub(r"\W", "_", path.stem)
    held = sys.modules.get(plain)
    if held is not None and Path(getattr(held, "__file__", None) or "").resolve() == path:
        return plain
    if plain == path.stem and held is None and plain not in sys.stdlib_module_names:
        return plain
    return f"{plain}_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"


def _load_module(place: str, spec: str, what: str) -> ModuleType:
    if startup.script_folder_counts() and not {"", str(Path.cwd())} & set(sys.path):
        sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name is not None and (place == error.name or place.startswith(error.name + ".")):
            raise UserError(
                f"{what} = {spec!r}: there is no module {error.name!r}",
                f'Install it, or name a file: {what} = "folder/file.py:name".',
                2,
            ) from error
        raise _import_failed(error, place, spec, what) from error
    except (Exception, SystemExit) as error:
        raise _import_failed(error, place, spec, what) from error


def _import_failed(error: BaseException, place: str, spec: str, what: str) -> UserError:
    fix = "Correct that file; `--traceback` shows the whole traceback."
    if isinstance(error, ModuleNotFoundError) and not startup.script_folder_counts():
        fix = f"Install {error.name}, or start Python without -P and -I: these leave out what lies beside a file."
    return UserError(f"{what} = {spec!r}: importing {place} raised {describe(error)}", fix, 2)


def loaded_sources() -> dict[str, tuple[str, str]]:
    """Path and SHA-256 of the source of every loaded module that belongs to neither Python, nor an installed package,
    nor this trainer, by the module's name."""
    bundle = startup.bundle_path()
    foreign = (_OURS, _BOOT, _LIBRARY, _PACKAGES, *([bundle] if bundle else []))
    found = {}
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__dict__", {}).get("__file__")
        if not isinstance(path, str) or path.startswith(foreign) or name == "__main__":
            continue
        if "/site-packages/" in path or "/dist-packages/" in path:
            continue
        try:
            found[name] = path, hashlib.sha256(Path(path).read_bytes()).hexdigest()
        except OSError:
            continue  # made up by the code itself
    return found


def describe(error: BaseException) -> str:
    """An exception of the user's code in one line: type, message, and the last line of the user's own it passed."""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if isinstance(error, SyntaxError):
        return text
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(("<frozen", _OURS, _LIBRARY))
    ]
    own = [frame for frame in frames if not frame.filename.startswith(_PACKAGES)] or frames
    if not own:
        return text
    last = own[-1]
    return f"{text} ({last.filename}, line {last.lineno})"


def _find(module: ModuleType, name: str, place: str, what: str) -> object:
    found: object = module
    for part in name.split("."):
        if not hasattr(found, part):
            near = difflib.get_close_matches(part, [n for n in dir(found) if not n.startswith("_")], n=1)
            raise UserError(
                f"{what}: {place} has no {name!r}",
                f"Did you mean {near[0]!r}?" if near else f"Define {name!r} there, or correct the name.",
                2,
            )
        found = getattr(found, part)
    return found
