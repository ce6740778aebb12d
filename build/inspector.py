"""Runs in each interpreter that the file has code for: loads all that is in it and says what is not as it went in.

Started as a file, in a clean process: the archive's path as argument; on standard input the modules' code and original
texts (None where they were left out), pickled; on standard output a list of sentences.
"""

import pickle
import runpy
import sys
from importlib import import_module
from importlib.util import decode_source
from typing import Any

Expected = dict[str, tuple[bytes, bytes | None]]  # module -> marshalled code, original text


def main() -> None:
    """Prints what is wrong."""
    archive = sys.argv[1]
    expected: Expected = pickle.load(sys.stdin.buffer)
    compiled: list[str] = []

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "compile" and arguments[0] is not None and archive in str(arguments[1]):
            compiled.append(str(arguments[1]))

    sys.addaudithook(watch)
    runpy.run_path(archive, run_name="inspected")
    faults = list(_faults(archive, expected))
    # of __main__ there is one bytecode, for one version
    faults += [f"{name} was compiled from source" for name in compiled if name != archive + "/__main__.py"]
    pickle.dump(faults, sys.stdout.buffer, protocol=4)


def _faults(archive: str, expected: Expected) -> list[str]:
    # the archive's own modules, which are not the build tool's
    files, boot = import_module("trainer_boot.bundle_file"), import_module("trainer_boot.finder")
    finder = boot.running()
    if finder is None or finder.archive.path != archive:
        return ["the Finder was not installed"]
    loader = finder.loader
    faults: list[str] = []
    if loader.modules.keys() != expected.keys():
        faults.append(f"other modules: {sorted(loader.modules.keys() ^ expected.keys())}")
    faults += files.BundleFile(archive).damage()
    for name in loader.modules.keys() & expected.keys():
        code, text = expected[name]
        spec = finder.find_spec(name)
        if loader.stored_code(name) != code:
            faults.append(f"{name} has other code")
        elif spec is None:
            if name.partition(".")[0] not in sys.stdlib_module_names:
                faults.append(f"{name} is not found")
        elif loader.get_code(name).co_filename != spec.origin:
            faults.append(f"the code of {name} has another file name")
        if loader.get_source(name) != (None if text is None else decode_source(text)):
            faults.append(f"{name} has another original text")
    return faults


if __name__ == "__main__":
    main()
