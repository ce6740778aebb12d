"""Stores and caches that another user of the machine could have put code into: none is entered, each is named.

Makes a store with a small environment, whose Python goes on as the command, and an import snapshot; then each set-up in
turn, as root in a folder of its own, with throw-away user numbers: one for the victim, one for the other user. The
victim starts the trainer there. Entered is where the environment's own `torch` runs, or where the snapshot is served.

    uv run python -m tools.prove_other_users                  writes docs/proofs/other-users.json
    uv run python -m tools.prove_other_users --only "bin is 0777;lock of a killed maker" --no-json
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tools.proof import parser as proof_parser
from tools.proof import write

ROOT = Path(__file__).resolve().parent.parent
VICTIM, OTHER = 61001, 61002
MARK = "the environment's own torch ran"
# asks for the environment as a start without torch does; prints what it enters, or why it does not
ENTER = """
import sys
sys.path.insert(0, {source!r})
from trainer_boot.environment.store import Store
from trainer_boot.environment.refused import Refused
store = Store({store!r})
try:
    stored = store.get({name!r})
except Refused as refused:
    print("refused:", refused.what, "| fix:", refused.fix)
else:
    import os
    os.execv(stored.python, [stored.python, "-c", "import torch"])
"""
# serves the snapshot, or makes it; prints the layer's note
SERVE = """
import json, sys
sys.path.insert(0, {source!r})
sys.path.append({site!r})
from trainer_boot import snapshot
note = snapshot.serve(sites=[{site!r}], node_local={node!r})
import planted
made = snapshot.record_if_missing(None)
print(json.dumps([note, made, snapshot.report()]))
"""
HOLD = """
import os, sys, time
sys.path.insert(0, {source!r})
from trainer_boot.file_lock import Lock
print(Lock({path!r}).take(), flush=True)
time.sleep(100)
"""


def as_user(number: int, words: list[str], **variables: str) -> "subprocess.CompletedProcess[str]":
    """Runs it as that user, who has no account and needs none."""
    environ = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "LC_ALL": "C.UTF-8", **variables}
    return subprocess.run(
        words,
        user=number,
        group=number,
        extra_groups=[],
        env=environ,
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


def give(path: Path, user: int) -> None:
    """Path and all below it belong to the user."""
    for each in (path, *path.rglob("*")):
        os.chown(each, user, user, follow_symlinks=False)


class Bed:
    """A folder that the victim can reach, with the code under proof in it and a Python that the victim may run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.chmod(0o755)
        shutil.copytree(ROOT / "src" / "trainer_boot", folder / "src" / "trainer_boot")
        self.source = str(folder / "src")
        self.python = _python(folder)

    def store(self) -> tuple[Path, Path]:
        """A store of the victim's with one environment, in a home of the victim's; the store and the environment."""
        home = Path(tempfile.mkdtemp(dir=self.folder))
        home.chmod(0o755)
        store = home / "data" / "store"
        environment = store / "environments" / "env"
        for folder in ("bin", "lib", "locks", "profiles", "tools"):
            (environment / folder if folder in ("bin", "lib") else store / folder).mkdir(parents=True, exist_ok=True)
        version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
        torch = environment / "lib" / version / "site-packages" / "torch"
        torch.mkdir(parents=True)
        (torch / "__init__.py").write_text(f"print({MARK!r})\n")
        (environment / "bin" / "python").symlink_to(self.python)
        (environment / "pyvenv.cfg").write_text(f"home = {Path(self.python).parent}\n")
        manifest = {"format": 1, "lock": "0" * 64, "python": "3", "variant": "", "extras": [], "size": 1, "packages": 1}
        (environment / "trainer-environment.json").write_text(json.dumps(manifest))
        give(home, VICTIM)
        return store, environment

    def enters(self, store: Path) -> tuple[bool, str]:
        """Whether the victim runs what is in it; what was said."""
        script = ENTER.format(source=self.source, store=str(store), name="env")
        done = as_user(VICTIM, [self.python, "-I", "-c", script])
        return MARK in done.stdout, (done.stdout + done.stderr).strip()

    def site(self) -> Path:
        """A site-packages folder with a package, old enough for a snapshot."""
        site = Path(tempfile.mkdtemp(dir=self.folder)) / "site-packages"
        (site / "planted-1.dist-info").mkdir(parents=True)
        (site / "planted.py").write_text("VALUE = 1\n")
        (site / "planted-1.dist-info" / "RECORD").write_text("planted.py,,\n")
        for each in (site.parent, site):
            each.chmod(0o755)
        os.utime(site, (1_600_000_000, 1_600_000_000))
        return site

    def serves(self, site: Path, node: str = "off", **variables: str) -> tuple[bool, str, dict[str, Any]]:
        """Whether the victim is served from a snapshot; what was said, and what is known of making one."""
        script = SERVE.format(source=self.source, site=str(site), node=node)
        done = as_user(VICTIM, [self.python, "-P", "-c", script], **variables)
        assert done.returncode == 0, done.stderr
        note, made, report = json.loads(done.stdout)
        return report.get("served", 0) > 0, str(note["why"]), made


def _python(folder: Path) -> str:
    """A Python that any user may run: the base interpreter, or a copy where root's folders hide it."""
    base = os.path.realpath(sys.executable)
    with contextlib.suppress(PermissionError):
        if as_user(VICTIM, [base, "-I", "-c", ""]).returncode == 0:
            return base
    prefix = Path(sys.base_prefix)
    target = folder / "python"
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    ignored = shutil.ignore_patterns("site-packages", "test", "__pycache__", "idlelib", "tkinter", "*.a")
    shutil.copytree(prefix / "lib" / version, target / "lib" / version, ignore=ignored)
    for library in (prefix / "lib").glob("libpython*"):
        shutil.copy2(library, target / "lib")
    (target / "bin").mkdir()
    return str(shutil.copy2(base, target / "bin" / version))


Row = dict[str, Any]
VERSION = f"python{sys.version_info[0]}.{sys.version_info[1]}"
SITE = f"lib/{VERSION}/site-packages"


def _mode(where: str, mode: int = 0o777) -> Callable[[Path, Path], Path]:
    def setup(store: Path, environment: Path) -> Path:
        (environment / where).chmod(mode)
        return store

    return setup


def _foreign(where: str) -> Callable[[Path, Path], Path]:
    def setup(store: Path, environment: Path) -> Path:
        os.chown(environment / where, OTHER, OTHER, follow_symlinks=False)
        return store

    return setup


def _open_parent(store: Path, environment: Path) -> Path:
    store.parent.chmod(0o777)
    return store


def _foreign_parent(store: Path, environment: Path) -> Path:
    os.chown(store.parent, OTHER, OTHER)
    return store


def _linked_store(store: Path, environment: Path) -> Path:
    os.chown(store.parent.parent, OTHER, OTHER)
    link = store.parent.parent.parent / f"link-{store.parent.parent.name}"
    link.symlink_to(store)
    os.chown(link, VICTIM, VICTIM, follow_symlinks=False)
    return link


def _replaced_environment(store: Path, environment: Path) -> Path:
    moved = store.parent.parent / "elsewhere"
    environment.rename(moved)
    give(moved, OTHER)
    environment.symlink_to(moved)
    os.chown(environment, VICTIM, VICTIM, follow_symlinks=False)
    return store


def _foreign_pth(store: Path, environment: Path) -> Path:
    path = environment / SITE / "planted.pth"
    path.write_text(f"import sys; print({MARK!r})\n")
    os.chown(path, OTHER, OTHER)
    return store


def _foreign_base(store: Path, environment: Path) -> Path:
    """A link of the victim's to an interpreter of the other user."""
    base = store.parent.parent / "base"
    shutil.copy2(environment / "bin" / "python", base)
    os.chown(base, OTHER, OTHER)
    (environment / "bin" / "python").unlink()
    (environment / "bin" / "python").symlink_to(base)
    os.chown(environment / "bin" / "python", VICTIM, VICTIM, follow_symlinks=False)
    return store


STORES: dict[str, Callable[[Path, Path], Path]] = {
    "bin is 0777": _mode("bin"),
    "site-packages is 0777": _mode(SITE),
    "lib is writable by a group": _mode("lib", 0o775),
    "torch/__init__.py is 0666": _mode(f"{SITE}/torch/__init__.py", 0o666),
    "bin/python is another's link": _foreign("bin/python"),
    "bin/python leads to another's program": _foreign_base,
    "torch/__init__.py is another's": _foreign(f"{SITE}/torch/__init__.py"),
    "a .pth file is another's": _foreign_pth,
    "pyvenv.cfg is another's": _foreign("pyvenv.cfg"),
    "the manifest is another's": _foreign("trainer-environment.json"),
    "the store lies in a folder of mode 0777": _open_parent,
    "a folder above the store is another's": _foreign_parent,
    "the store is a link into another's folder": _linked_store,
    "the environment is a link to another's": _replaced_environment,
}


def stores(bed: Bed, only: set[str]) -> list[Row]:
    """A row for each set-up of a store, after one that must be entered."""
    rows = []
    for name, setup in {"as it should be": lambda store, environment: store, **STORES}.items():
        if only and name not in only and name != "as it should be":
            continue
        store, environment = bed.store()
        entered, said = bed.enters(setup(store, environment))
        wanted = name == "as it should be"
        good = entered if wanted else not entered and said.startswith("refused:")
        rows.append({"what": f"store: {name}", "entered": entered, "said": said, "good": good})
    return rows


def caches(bed: Bed, only: set[str]) -> list[Row]:
    """A row for each set-up of a cache, after one that must be served."""
    rows: list[Row] = []
    tmp = bed.folder / "tmp"
    tmp.mkdir()
    tmp.chmod(0o1777)

    def fresh() -> tuple[Path, Path]:
        """A site and a folder of the victim's with its snapshot."""
        site, folder = bed.site(), Path(tempfile.mkdtemp(dir=bed.folder))
        folder.chmod(0o755)
        os.chown(folder, VICTIM, VICTIM)
        cache = folder / "cache"
        _, why, made = bed.serves(site, TRAINER_SNAPSHOT_DIR=str(cache))
        assert made["made"], (why, made)
        return site, cache

    def note(name: str, served: bool, why: str, good: bool) -> None:
        rows.append({"what": f"cache: {name}", "entered": served, "said": why, "good": good})

    def asked(name: str) -> bool:
        return not only or name in only

    site, cache = fresh()
    served, why, _ = bed.serves(site, TRAINER_SNAPSHOT_DIR=str(cache))
    note("as it should be", served, why, served)
    changes: dict[str, Callable[[Path, Path], object]] = {
        "the folder is another's": lambda cache, file: os.chown(cache, OTHER, OTHER),
        "the folder is 0777": lambda cache, file: cache.chmod(0o777),
        "the folder lies in one of mode 0777": lambda cache, file: cache.parent.chmod(0o777),
        "the snapshot is another's": lambda cache, file: os.chown(file, OTHER, OTHER),
        "the snapshot is 0666": lambda cache, file: file.chmod(0o666),
        "the snapshot is a link to another's": _linked_file,
    }
    for name, change in changes.items():
        if asked(name):
            site, cache = fresh()
            (file,) = cache.glob("*.snapshot")
            change(cache, file)
            served, why, _ = bed.serves(site, TRAINER_SNAPSHOT_DIR=str(cache))
            note(name, served, why, not served and bool(why))
    for name, spoil in (
        ("the copy on the node is another's", lambda folder, copy: os.chown(copy, OTHER, OTHER)),
        ("the folder on the node is 0777", lambda folder, copy: folder.chmod(0o777)),
        ("the folder on the node is another's", lambda folder, copy: os.chown(folder, OTHER, OTHER)),
    ):
        if asked(name):
            site, cache = fresh()
            node = cache.parent / "node"
            variables = {"TRAINER_SNAPSHOT_DIR": str(cache), "TRAINER_NODE_DIR": str(node)}
            bed.serves(site, "on", **variables)
            (copy,) = node.glob("*.snapshot")
            spoil(node, copy)
            served, why, _ = bed.serves(site, "on", **variables)
            good = served and why.startswith("no copy on this node: ")
            note(f"{name} (the shared file is read)", not good, why, good)
    if asked("lock of a killed maker"):
        note("lock of a killed maker", *_killed_maker(bed))
    if asked("the usual name in /tmp is another's"):
        note("the usual name in /tmp is another's", *_taken_name(bed))
    return rows


def _linked_file(cache: Path, file: Path) -> None:
    moved = cache.parent / "other.snapshot"
    file.rename(moved)
    os.chown(moved, OTHER, OTHER)
    file.symlink_to(moved)
    os.chown(file, VICTIM, VICTIM, follow_symlinks=False)


def _killed_maker(bed: Bed) -> tuple[bool, str, bool]:
    """A maker holds the lock, and is killed: the next one makes at once."""
    site, folder = bed.site(), Path(tempfile.mkdtemp(dir=bed.folder))
    os.chown(folder, VICTIM, VICTIM)
    _, _, made = bed.serves(site, TRAINER_SNAPSHOT_DIR=str(folder))
    path = str(made["path"])
    Path(path).unlink()
    holder = subprocess.Popen(
        [bed.python, "-I", "-c", HOLD.format(source=bed.source, path=path)],
        user=VICTIM,
        group=VICTIM,
        extra_groups=[],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    taken = holder.stdout.readline().strip() == "True"
    _, _, waiting = bed.serves(site, TRAINER_SNAPSHOT_DIR=str(folder))
    holder.kill()
    holder.communicate()
    _, _, after = bed.serves(site, TRAINER_SNAPSHOT_DIR=str(folder))
    good = taken and not waiting["made"] and after["made"]
    return False, f"held: {waiting['why']}; killed: made {after['made']} in {after.get('seconds')} s", good


def _taken_name(bed: Bed) -> tuple[bool, str, bool]:
    """Another user has made /tmp/trainer-pyz-UID: another folder is used, and found again."""
    usual = Path(f"/tmp/trainer-pyz-{VICTIM}")
    shutil.rmtree(usual, ignore_errors=True)
    usual.mkdir(mode=0o777)
    os.chown(usual, OTHER, OTHER)
    try:
        site = bed.site()
        _, _, made = bed.serves(site, HOME="relative")
        served, why, again = bed.serves(site, HOME="relative")
        place = Path(str(made.get("path", "")))
        good = bool(made["made"]) and served and not again["made"] and place.parent.name.startswith(f"{usual.name}-")
        return not good, f"made in {place.parent}, served from there: {served}; {why}", good
    finally:
        for folder in Path("/tmp").glob(f"{usual.name}*"):
            shutil.rmtree(folder)


def main() -> int:
    parser = proof_parser(__doc__)
    parser.add_argument("--only", help="set-ups, separated by ';' (default: all)")
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        print("error: only root can act as other users\nfix: Run this proof as root.", file=sys.stderr)
        return 2
    only = set(arguments.only.split(";")) if arguments.only else set()
    with tempfile.TemporaryDirectory(prefix="trainer-users-", dir="/tmp") as name:
        bed = Bed(Path(name))
        rows = stores(bed, only) + caches(bed, only)
        for row in rows:
            row["said"] = row["said"].replace(name, "...")
            print(f"{'good' if row['good'] else 'BAD '} {row['what']}: {row['said']}")
    bad = [row for row in rows if not row["good"]]
    print(f"{len(rows) - len(bad)} of {len(rows)} as they should be")
    write("other-users", {"victim": VICTIM, "other": OTHER, "bad": len(bad), "rows": rows}, arguments)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
