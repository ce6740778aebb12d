"""uv.lock as it is, as it was, and as it must not be."""

from pathlib import Path

import pytest

from build.errors import BuildError
from build.lock import Edge, Source, read_lock
from tests.build_tool.lock_bed import PURE, lock, package, project, write

ROOT = Path(__file__).resolve().parents[2]


def test_the_project_s_own_lock_is_read() -> None:
    own = read_lock(ROOT / "uv.lock")
    root = own.root()
    assert root.name == "trainer-pyz"
    assert {"tokenizers", "tensorboard"} <= set(root.extras)
    assert "dev" in root.groups
    assert len(own.versions("numpy")) > 1
    (torch,) = own.versions("torch")
    assert torch.hashes
    assert all(value.startswith("sha256:") for value in torch.hashes)


def test_everything_of_a_package_is_read(tmp_path: Path) -> None:
    sdist = 'sdist = { url = "https://files.example/p-1.tar.gz", hash = "sha256:cc", size = 2 }'
    extra = '[package.optional-dependencies]\nSome_Extra = [{ name = "b" }]'
    edge = '{ name = "b", extra = ["X.y"], marker = "sys_platform == \'linux\'" }'
    found = lock(tmp_path, package("Some.Package", "1.0", PURE, edge, more=f"{sdist}\n{extra}"), package("b", "2"))
    (some,) = found.versions("some_package")
    assert some.name == "some-package"
    assert some.source == Source("registry", "https://index.example/simple")
    assert some.dependencies == (Edge("b", extras=frozenset({"x-y"}), marker="sys_platform == 'linux'"),)
    assert some.extras == {"some-extra": (Edge("b"),)}
    assert [wheel.filename for wheel in some.wheels] == ["p-1-py3-none-any.whl"]
    assert some.hashes == ("sha256:aa", "sha256:cc")
    assert found.requires_python == ">=3.11"


def test_every_kind_of_source_is_read(tmp_path: Path) -> None:
    sources = {
        "git": 'git = "https://git.example/a?rev=main#0123abc"',
        "path": 'path = "../wheels/a-1-py3-none-any.whl"',
        "url": 'url = "https://files.example/a.whl", subdirectory = "x"',
        "editable": 'editable = "member"',
        "directory": 'directory = "vendored"',
    }
    head = '[[package]]\nversion = "1"\n'
    packages = [f'{head}name = "{kind}"\nsource = {{ {text} }}\n' for kind, text in sources.items()]
    found = lock(tmp_path, project(), *packages)
    assert [each.source.kind for each in found.packages[1:]] == list(sources)
    assert found.root().name == "app"
    wheel = 'name = "local"\nsource = { path = "w" }\nwheels = [{ filename = "local-1-py3-none-any.whl" }]\n'
    (local,) = lock(tmp_path, project(), head + wheel).versions("local")
    assert local.wheels[0].filename == "local-1-py3-none-any.whl"
    assert local.hashes == ()


def test_the_first_layout_is_read(tmp_path: Path) -> None:
    """Tables called distribution, sources and extras as one text."""
    old = (
        'version = 1\n[[distribution]]\nname = "app"\nversion = "1"\nsource = "editable+."\n'
        '[[distribution.dependencies]]\nname = "b"\nextra = "x"\nmarker = "platform_system == \'Linux\'"\n'
        '[[distribution]]\nname = "b"\nversion = "2"\nsource = "registry+https://index.example/simple"\n'
    )
    found = read_lock(write(tmp_path, head=old))
    assert found.root().dependencies == (Edge("b", extras=frozenset({"x"}), marker="platform_system == 'Linux'"),)
    assert found.packages[1].source == Source("registry", "https://index.example/simple")


def test_an_edge_picks_its_version(tmp_path: Path) -> None:
    edges = ('{ name = "a", version = "1" }', '{ name = "a", version = "2" }')
    found = lock(tmp_path, project(*edges), package("a", "1"), package("a", "2"))
    assert [found.find(edge).version for edge in found.root().dependencies] == ["1", "2"]


@pytest.mark.parametrize(
    ("packages", "says"),
    [
        ([project('{ name = "absent" }')], "asks for absent and has 0"),
        ([project('{ name = "a", version = "3" }'), package("a", "1")], "asks for a 3 and has 0"),
        ([project('{ name = "a" }'), package("a", "1"), package("a", "2")], "asks for a and has 2"),
        ([project('{ name = "a", marker = "no marker" }'), package("a", "1")], "does not have the expected layout"),
        (["[[package]]\nversion = '1'"], "does not have the expected layout"),
        (["version"], "not TOML"),
    ],
)
def test_a_lock_that_does_not_hold_together_is_refused(packages: list[str], says: str, tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=says) as caught:
        lock(tmp_path, *packages)
    assert "uv lock" in caught.value.fix


@pytest.mark.parametrize("head", ["version = 2\n", "", 'version = "1"\n'])
def test_another_format_version_is_refused(head: str, tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="format version"):
        read_lock(write(tmp_path, project(), head=head))


def test_a_missing_lock_is_named(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"uv\.lock"):
        read_lock(tmp_path / "uv.lock")


def test_a_lock_without_the_project_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="does not have a package"):
        lock(tmp_path, package("a", "1")).root()
