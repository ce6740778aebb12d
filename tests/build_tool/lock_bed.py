"""Small locks, written as text."""

from pathlib import Path

from build.lock import Lock, read_lock

REGISTRY = 'source = { registry = "https://index.example/simple" }'
PURE = '    { url = "https://files.example/p-1-py3-none-any.whl", hash = "sha256:aa", size = 1 },'
NATIVE = (
    '    { url = "https://files.example/p-1-cp311-cp311-manylinux_2_28_x86_64.whl", hash = "sha256:bb", size = 1 },'
)


def package(name: str, version: str, wheel: str = PURE, *dependencies: str, more: str = "") -> str:
    """One [[package]] of a registry; `dependencies` and `more` are TOML."""
    lines = ["[[package]]", f'name = "{name}"', f'version = "{version}"', REGISTRY]
    lines += ["dependencies = [", *(f"    {dependency}," for dependency in dependencies), "]"]
    lines += ["wheels = [", wheel, "]", more, ""]
    return "\n".join(lines)


def project(*dependencies: str, more: str = "") -> str:
    """The root."""
    lines = ["[[package]]", 'name = "app"', 'version = "0.1.0"', 'source = { virtual = "." }', "dependencies = ["]
    return "\n".join([*lines, *(f"    {dependency}," for dependency in dependencies), "]", more, ""])


def write(folder: Path, *packages: str, head: str = 'version = 1\nrevision = 3\nrequires-python = ">=3.11"\n') -> Path:
    """A uv.lock of these packages."""
    path = folder / "uv.lock"
    path.write_text("\n".join([head, *packages]), encoding="utf-8")
    return path


def lock(folder: Path, *packages: str) -> Lock:
    """The same, read."""
    return read_lock(write(folder, *packages))
