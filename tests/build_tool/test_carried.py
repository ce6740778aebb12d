"""What the file carries of a lock, as the start reads it."""

import subprocess
import sys
from pathlib import Path

import pytest

from build.carried import environment_json
from build.errors import BuildError
from build.lock import read_lock
from tests.build_tool import lock_bed
from tests.build_tool.lock_bed import NATIVE, PURE, package, project
from trainer_boot.environment.carried import Carried, store_name
from trainer_boot.environment.refused import Refused
from trainer_boot.environment.wheels import Target, best

ROOT = Path(__file__).resolve().parent.parent.parent
LINUX = {"sys_platform": "linux", "platform_machine": "x86_64", "platform_system": "Linux"}
OLDER = {**LINUX, "python_full_version": "3.11.7", "python_version": "3.11"}
NEWER = {**LINUX, "python_full_version": "3.12.1", "python_version": "3.12"}


def carried(folder: Path, *packages: str, head: str = "") -> Carried:
    text = head or 'version = 1\nrevision = 3\nrequires-python = ">=3.11"\n'
    return Carried(environment_json(read_lock(lock_bed.write(folder, *packages, head=text))))


def wheel(name: str, tags: str, digest: str = "aa") -> str:
    return f'    {{ url = "https://files.example/{name}-{tags}.whl", hash = "sha256:{digest}", size = 7 }},'


def test_forked_versions_extras_and_groups(tmp_path: Path) -> None:
    root = project(
        '{ name = "forked", version = "1.9", marker = "python_full_version < \'3.12\'" }',
        '{ name = "forked", version = "2.4", marker = "python_full_version >= \'3.12\'" }',
        '{ name = "winonly", marker = "sys_platform == \'win32\'" }',
        "{ name = \"oldmarker\", marker = \"platform_system == 'Linux' and platform_machine == 'x86_64'\" }",
        '{ name = "withextra", extra = ["fast"] }',
        more='[package.optional-dependencies]\nplots = [{ name = "plotonly" }]\n'
        '[package.dev-dependencies]\ndev = [{ name = "devonly" }]',
    )
    fast = '[package.optional-dependencies]\nfast = [{ name = "speedup" }]'
    found = carried(
        tmp_path,
        root,
        package("devonly", "9.0"),
        package("forked", "1.9"),
        package("forked", "2.4"),
        package("oldmarker", "1.0"),
        package("plotonly", "3.0"),
        package("speedup", "0.7"),
        package("winonly", "0.4"),
        package("withextra", "5.1", more=fast),
    )
    always = {"oldmarker": "1.0", "withextra": "5.1", "speedup": "0.7"}
    assert {pin.name: pin.version for pin in found.here(target=OLDER)} == {"forked": "1.9", **always}
    assert {pin.name: pin.version for pin in found.here(target=NEWER)} == {"forked": "2.4", **always}
    assert found.extras == ["plots"]
    assert "plotonly" in {pin.name for pin in found.here("", ["plots"], target=OLDER)}
    assert "devonly" not in str(found._packages)


def test_files_for_the_machines_that_are_served(tmp_path: Path) -> None:
    tags = [
        "cp311-cp311-manylinux_2_28_x86_64", "cp311-cp311-manylinux_2_28_aarch64", "cp310-cp310-manylinux_2_28_x86_64",
        "cp311-cp311-win_amd64", "cp311-cp311-macosx_11_0_arm64", "cp39-abi3-manylinux2014_x86_64",
        "cp313-cp313-musllinux_1_2_x86_64", "cp311-cp311-manylinux2014_s390x", "py3-none-any", "py2-none-any",
    ]  # fmt: skip
    found = carried(
        tmp_path, project('{ name = "p" }'), package("p", "1", "\n".join(wheel("p-1", tag) for tag in tags))
    )
    (pin,) = found.pins()
    kept = sorted(file.name.removeprefix("p-1-").removesuffix(".whl") for file in pin.files)
    assert kept == [
        "cp311-cp311-manylinux_2_28_aarch64", "cp311-cp311-manylinux_2_28_x86_64", "cp313-cp313-musllinux_1_2_x86_64",
        "cp39-abi3-manylinux2014_x86_64", "py3-none-any",
    ]  # fmt: skip
    assert best(pin, Target((3, 11), "aarch64")).name == "p-1-cp311-cp311-manylinux_2_28_aarch64.whl"
    assert best(pin, Target((3, 12), "x86_64")).name == "p-1-cp39-abi3-manylinux2014_x86_64.whl"
    assert best(pin, Target((3, 12), "aarch64")).name == "p-1-py3-none-any.whl"


def test_what_the_lock_does_not_cover_is_named(tmp_path: Path) -> None:
    head = (
        'version = 1\nrevision = 3\nrequires-python = ">=3.11, <3.13"\n'
        "supported-markers = [\"sys_platform == 'linux'\"]\n"
    )
    found = carried(
        tmp_path, project('{ name = "p" }'), package("p", "1", wheel("p-1", "cp311-cp311-win_amd64")), head=head
    )
    with pytest.raises(Refused, match=r"locked for Python >=3.11, <3.13; .* is Python 3.14.0"):
        found.here(target={**LINUX, "python_full_version": "3.14.0"})
    with pytest.raises(Refused, match="does not cover darwin"):
        found.here(target={**OLDER, "sys_platform": "darwin"})
    (pin,) = found.here(target=OLDER)
    with pytest.raises(Refused, match=r"does not cover Python .* p 1 it has its source only"):
        best(pin)


def test_source_only_and_no_hash_are_refused(tmp_path: Path) -> None:
    sdist = 'sdist = { url = "https://files.example/p-1.tar.gz", hash = "sha256:aa", size = 1 }'
    (pin,) = carried(tmp_path, project('{ name = "p" }'), package("p", "1", "", more=sdist)).pins()
    with pytest.raises(Refused, match="its source only"):
        best(pin)
    bare = '    { url = "https://files.example/q-1-py3-none-any.whl" },'
    (pin,) = carried(tmp_path, project('{ name = "q" }'), package("q", "1", bare)).pins()
    with pytest.raises(Refused, match="without a hash"):
        best(pin)


def test_variants_are_extras_that_conflict(tmp_path: Path) -> None:
    marker = "extra != 'extra-3-app-cpu' and extra != 'extra-3-app-cu130'"
    root = project(
        f'{{ name = "torch", version = "2.15.0", marker = "{marker}" }}',
        '{ name = "torch", version = "2.15.0+cpu", marker = "extra == \'extra-3-app-cpu\'" }',
        '{ name = "torch", version = "2.15.0+cu130", marker = "extra == \'extra-3-app-cu130\'" }',
        '{ name = "tool" }',
        more='[package.optional-dependencies]\ncpu = [{ name = "torch", version = "2.15.0+cpu" }]\n'
        'cu130 = [{ name = "torch", version = "2.15.0+cu130" }]\nmore = [{ name = "plus" }]',
    )
    head = (
        'version = 1\nrevision = 3\nrequires-python = ">=3.11"\n'
        'conflicts = [[{ package = "app", extra = "cpu" }, { package = "app", extra = "cu130" }]]\n'
    )
    versions = ["2.15.0", "2.15.0+cpu", "2.15.0+cu130"]
    torches = [package("torch", version, NATIVE) for version in versions]
    found = carried(tmp_path, root, *torches, package("tool", "1"), package("plus", "2"), head=head)
    assert found.variants == ["", "cpu", "cu130"]
    assert found.extras == ["more"]
    for variant, version in zip(found.variants, versions, strict=True):
        pins = {pin.name: (pin.version, pin.kind) for pin in found.pins(variant)}
        assert pins == {"torch": (version, "environment"), "tool": ("1", "bundled")}
    assert {pin.name for pin in found.pins("cpu", ["more"])} == {"torch", "tool", "plus"}
    assert store_name(found, "cpu", ["more"]).endswith("-cpu-more")
    with pytest.raises(Refused, match="no variant 'rocm'") as caught:
        found.pins("rocm")
    assert caught.value.fix == "Use one that it has: cpu, cu130."


def test_groups_and_comments_do_not_change_its_digest(tmp_path: Path) -> None:
    first = carried(tmp_path, project('{ name = "p" }'), package("p", "1"))
    group = '[package.dev-dependencies]\ndev = [{ name = "q" }]'
    second = carried(tmp_path, project('{ name = "p" }', more=group), package("p", "1"), package("q", "1"))
    third = carried(tmp_path, project('{ name = "p" }'), package("p", "1", PURE.replace("aa", "ab")))
    assert first.digest == second.digest != third.digest


def test_a_wheel_without_origin_cannot_be_carried(tmp_path: Path) -> None:
    git = package("p", "1", "").replace(lock_bed.REGISTRY, 'source = { git = "https://git.example/p" }')
    with pytest.raises(BuildError, match="comes from git"):
        carried(tmp_path, project('{ name = "p" }'), git)


def test_our_own_lock_is_covered_where_it_should_be() -> None:
    found = Carried(environment_json(read_lock(ROOT / "uv.lock")))
    for machine in ("x86_64", "aarch64"):
        for minor in (11, 12, 13):
            target = Target((3, minor), machine)
            pins = found.here(target=target.markers() or {})
            assert {"torch", "numpy"} <= {pin.name for pin in pins}
            assert all(best(pin, target).hash for pin in pins)
    assert found.installer is not None
    assert best(found.installer).name.startswith("uv-")


def test_the_same_uv_is_pinned_for_a_clone() -> None:
    """tools/uv installs what the file would."""
    (uv,) = read_lock(ROOT / "uv.lock").versions("uv")
    lines = (ROOT / "tools" / "uv-requirements.txt").read_text().replace("\\\n", " ").split()
    assert lines[0] == f"uv=={uv.version}"
    assert {word.removeprefix("--hash=") for word in lines[1:]} >= set(uv.hashes)


def test_it_reads_no_other_format() -> None:
    with pytest.raises(ValueError, match="carries no lock"):
        Carried(b"{}")


def test_names_are_of_this_interpreter(tmp_path: Path) -> None:
    name = store_name(carried(tmp_path, project('{ name = "p" }'), package("p", "1")))
    tag = subprocess.run(
        [sys.executable, "-c", "import sysconfig; print(sysconfig.get_config_var('SOABI'))"],
        capture_output=True, text=True, check=True,
    ).stdout.split("-")[1]  # fmt: skip
    assert name.split("-")[1] == f"cp{tag}"
