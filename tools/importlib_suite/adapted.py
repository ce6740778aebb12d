"""CPython's tests of one class of finder, loader or reader, with ours in its place."""

import importlib
import sys
import types
import unittest
from importlib import machinery
from pathlib import Path
from typing import Any

from test.test_importlib import util  # type: ignore[import-not-found]
from test.test_importlib.source import test_file_loader, test_finder  # type: ignore[import-not-found]

from tools.importlib_suite.bundles import Bundles, Fresh, below
from trainer_boot.finder import BundleLoader
from trainer_boot.namespaces import SpreadLoader
from trainer_boot.resources import BundlePath, Merged, PortionsReader

ADAPTER: list[Bundles] = []
FILES_ONLY = {
    "finder": ("empty_string_for_dir", "invalidate_caches", "dir_removal_handling", "no_read_directory", "ignore_file"),
    "loader": (
        *("load_module_API", "get_filename_API", "equality", "inequality", "file_from_empty_string_dir"),
        *("timestamp_overflow", "checked_hash_based_pyc", "overridden_checked_hash_based_pyc"),
        *("unchecked_hash_based_pyc", "overridden_unchecked_hash_based_pyc", "module_reuse"),
    ),
}


def suite(adapter: Bundles, loader: unittest.TestLoader) -> unittest.TestSuite:
    """The classes below."""
    ADAPTER[:] = [adapter]
    cases = (FolderFinderTests, BundleFinderTests, LoaderTests)
    return unittest.TestSuite(loader.loadTestsFromTestCase(case) for case in cases)


class _Finder(test_finder.FinderTests):  # type: ignore[misc]  # has no types
    machinery = machinery
    NOT_FOUND = None

    def run_test(self, test: str, create: Any = None, *, compile_: Any = None, unlink: Any = None) -> Any:
        """Without the parts that delete a source and leave what Python compiled of it."""
        return None if unlink else super().run_test(test, create)

    def _loader(self, spec: Any) -> Any:
        return None if spec is None else spec.loader


class FolderFinderTests(_Finder, unittest.TestCase):
    """FolderFinder in the place of FileFinder."""

    def get_finder(self, root: str) -> Any:
        """Of a folder."""
        return ADAPTER[0].hook(root)

    def _find(self, finder: Any, name: str, loader_only: bool = False) -> Any:
        return self._loader(finder.find_spec(name))


class BundleFinderTests(_Finder, unittest.TestCase):
    """BundleFinder, which is asked with the `__path__` of the package."""

    def import_(self, root: str, module: str) -> Any:
        """The loader of a module."""
        finder = ADAPTER[0].of(sys.path[0])
        assert finder is not None
        return self._loader(finder.find_spec(module, [root] if "." in module else None))


class LoaderTests(test_file_loader.SimpleTest, unittest.TestCase):  # type: ignore[misc]
    """BundleLoader in the place of SourceFileLoader."""

    importlib, abc, util = machinery, machinery, util

    @staticmethod
    def _loader(name: str, path: Any) -> BundleLoader:
        finder = ADAPTER[0].of(sys.path[0])
        if finder is None:  # of nothing: the test wants an ImportError
            finder = ADAPTER[0].maker.opened("/nowhere", {})
        return finder.loader

    machinery = types.SimpleNamespace(SourceFileLoader=_loader, ModuleSpec=machinery.ModuleSpec)


for _case, _names in ((FolderFinderTests, "finder"), (BundleFinderTests, "finder"), (LoaderTests, "loader")):
    for _name in FILES_ONLY[_names]:
        setattr(_case, f"test_{_name}", None)


def adapt(module: Any, adapter: Bundles) -> None:
    """Changes what a test module expects of the types of finders, loaders and readers."""
    if module.__name__ in ("test.test_runpy", "test.test_pkgutil"):
        module.importlib = _Instead(importlib, machinery=_Instead(machinery, FileFinder=Fresh, **OUR_LOADERS))
    if module.__name__ == "test.test_runpy":
        _expect_our_loader(module.CodeExecutionMixin)
    if module.__name__ == "test.test_zipimport":
        _compile_ourselves(module, adapter)
    if module.__name__.endswith(".test_reader"):
        _read_by_ours(module, adapter)


OUR_LOADERS = {"SourceFileLoader": BundleLoader}


class _Instead:
    """A module in which a few names mean something else."""

    def __init__(self, module: Any, **names: Any) -> None:
        self._module = module
        vars(self).update(names)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def _expect_our_loader(mixin: Any) -> None:
    plain = mixin.assertNamespaceMatches

    def assert_matches(self: Any, result: Any, expected: Any) -> None:
        spec, wanted = result["__spec__"], expected["__spec__"]
        if isinstance(getattr(spec, "loader", None), BundleLoader):
            wanted.loader = spec.loader
        plain(self, result, expected)

    mixin.assertNamespaceMatches = assert_matches


def _compile_ourselves(module: Any, adapter: Bundles) -> None:
    adapter.texts[module.test_pyc] = module.test_src.encode()
    case = module.UncompressedZipImportTestCase
    plain = case.doTest
    case.doTest = lambda self, extension, *rest, **options: plain(self, extension and ".py", *rest, **options)


def _read_by_ours(module: Any, adapter: Bundles) -> None:
    def opened(folder: Any) -> BundlePath:
        place = Path(folder)
        finder = adapter.maker.opened(str(place.parent), below(str(place.parent), place.name))
        return BundlePath(finder.archive, place.name)

    def reader(path: Any) -> PortionsReader:
        found = adapter.find_spec("namespacedata01")
        assert isinstance(found.loader, SpreadLoader)
        assert list(found.submodule_search_locations) == list(path)
        made: PortionsReader = found.loader.get_resource_reader("namespacedata01")
        return made

    class Meta(type):
        def __call__(cls, *folders: Any) -> Any:
            return Merged([opened(folder) for folder in folders])

        def __instancecheck__(cls, value: object) -> bool:
            return isinstance(value, Merged)

    module.MultiplexedPath = Meta("MultiplexedPath", (), {})
    module.NamespaceReader = reader
