"""Which of CPython's tests judge an importer, where their fixtures lie, and what is left out, each with its reason."""

import fnmatch
import importlib
import os
import sys
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.importlib_suite import adapted
from tools.importlib_suite.bundles import Bundles, below

LIBRARY = str(Path(os.__file__).parent)
SUITE = "test.test_importlib"
EVERYWHERE = (
    f"{SUITE}.test_namespace_pkgs",
    f"{SUITE}.test_pkg_import",
    f"{SUITE}.test_api",
    f"{SUITE}.test_lazy",
    f"{SUITE}.test_threaded_import",
    f"{SUITE}.import_.test___loader__",
    f"{SUITE}.import_.test___package__",
    f"{SUITE}.import_.test_api",
    f"{SUITE}.import_.test_caching",
    f"{SUITE}.import_.test_fromlist",
    f"{SUITE}.import_.test_meta_path",
    f"{SUITE}.import_.test_packages",
    f"{SUITE}.import_.test_path",
    f"{SUITE}.import_.test_relative_imports",
    f"{SUITE}.source.test_case_sensitivity",
    f"{SUITE}.source.test_path_hook",
    f"{SUITE}.source.test_source_encoding",
    "test.test_pkg",
    "test.test_pkgutil",
    "test.test_runpy",
    "test.test_zipimport",
    "test.test_zipimport_support",
)
RESOURCES = ("compatibilty_files", "contents", "custom", "files", "functional", "open", "path", "read", "reader")
METADATA = ("main", "api", "zip")


def names() -> list[str]:
    """The test modules of this Python."""
    old, oldest = sys.version_info < (3, 13), sys.version_info < (3, 12)
    resources = f"{SUITE}.test_" if oldest else f"{SUITE}.resources.test_"
    metadata = f"{SUITE}.test_" if old else f"{SUITE}.metadata.test_"
    found = list(EVERYWHERE)
    found += [resources + name for name in (*RESOURCES, "resource")]
    found += [metadata + ("metadata_api" if old and name == "api" else name) for name in METADATA]
    inspect = "test.test_inspect" if oldest or not Path(LIBRARY, "test", "test_inspect").is_dir() else ""
    found.append(inspect or "test.test_inspect.test_inspect")
    return [name for name in found if _exists(name)]


def _exists(name: str) -> bool:
    place = Path(LIBRARY, *name.split("."))
    return place.with_suffix(".py").is_file() or (place / "__init__.py").is_file()


def fixture_folders() -> list[str]:
    """Those of the interpreter's own that tests put on `sys.path`."""
    suite = Path(LIBRARY, *SUITE.split("."))
    return [str(suite / part) for part in ("namespace_pkgs", "resources/zipdata", "zipdata")]


def pretend(adapter: Bundles) -> None:
    """Packages of fixtures that the tests import by their full names come from an archive too."""
    found = [f"test/test_importlib{part}/data0{i}" for part in ("", "/resources") for i in (1, 2, 3)]
    found += ["test/inspect_fodder.py", "test/inspect_fodder2.py"]
    found += ["test/test_inspect/inspect_fodder.py", "test/test_inspect/inspect_fodder2.py"]
    there = [path for path in found if Path(LIBRARY, path).exists()]
    suite = Path(LIBRARY, *SUITE.split("."))
    for place in suite, suite / "resources":
        if (place / "namespacedata01").is_dir():
            adapter.partly[str(place)] = below(str(place), "namespacedata01")
    if there:
        adapter.pretend(LIBRARY, below(LIBRARY, *there))


def tests(adapter: Bundles | None) -> Iterator[unittest.TestCase]:
    """All of them, one by one; without an adapter as they are."""
    loader = unittest.TestLoader()
    for name in names():
        module = importlib.import_module(name)
        if adapter is not None:
            adapted.adapt(module, adapter)
        yield from _flat(loader.loadTestsFromModule(module))
    if adapter is not None:
        yield from _flat(adapted.suite(adapter, loader))


def _flat(suite: Any) -> Iterator[unittest.TestCase]:
    for each in suite:
        if isinstance(each, unittest.TestSuite):
            yield from _flat(each)
        else:
            yield each


def left_out(identity: str) -> str:
    """Why a test is not run, or ""."""
    for reason, patterns in LEFT_OUT.items():
        if any(fnmatch.fnmatch(identity, pattern) for pattern in patterns):
            return reason
    return ""


_ZIP = "test.test_zipimport.*ZipImportTestCase."
LEFT_OUT = {
    "is about compiled files beside or without their source, which Python makes in folders": (
        "test.test_runpy.RunModuleTestCase.test_*_relative_import",
        "test.test_runpy.RunPathTestCase.test_directory_compiled",
        "test.test_runpy.RunPathTestCase.test_zipfile_compiled",
        "*.PackagesDistributionsTest.test_packages_distributions_all_module_types",
        *(_ZIP + name for name in ("testBadM*", "test*HashBasedPyc", "test_checked_hash*", "test2038MTime")),
    ),
    "is about the zipimporter object and broken zips; an archive of ours is opened by trainer_boot alone": (
        *(_ZIP + f"test{name}" for name in ("AFakeZlib", "ZipImporterMethods*", "InvalidateCaches", "GetData")),
        *(_ZIP + f"test{name}" for name in ("Unencodable", "BytesPath", "ImporterAttr", "*Comment", "Zip64*")),
        "test.test_zipimport.BadFileZipImportTestCase.*",
    ),
    "wants a path in the file system, which only files have": (
        "*.test_path.PathDiskTests.test_natural_path",
        "*.test_reader.NamespaceReaderTest.test_resource_path",
    ),
    "is about how the standard library makes its reader": (
        *(f"*.test_reader.MultiplexedPathTest.test_{name}" for name in ("init_*", "repr*")),
        *(f"*.test_reader.NamespaceReaderTest.test_{name}" for name in ("init_error", "files")),
    ),
}
