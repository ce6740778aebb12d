"""Ways to damage a built file, and what a run of the damaged one shows.

A change is a function of a seed, so a proof may be cut into pieces and goes on where it stopped.
"""

import io
import json
import os
import random
import subprocess
import sys
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import trainer_boot.layout as layout

SECONDS = 120
PROBE = """
import contextlib, hashlib, io, runpy, sys
place = sys.argv[1]
runpy.run_path(place, run_name="probe")
from trainer_boot.finder import running
finder = running()
total = hashlib.sha256()
members, loader = finder.archive.members, finder.loader
for path in sorted(members.files):
    total.update(members.read(path))
for name in sorted(finder.modules):
    total.update((loader.get_source(name) or "").encode())
    loader.get_code(name)
    total.update(loader.stored_code(name) if loader.has_code else b"")
import importlib, packaging.markers, packaging.specifiers, packaging.version
from importlib import metadata, resources
said = [str(sorted(map(packaging.version.Version, ["1.0", "1.0rc1", "2!0.1", "1.0.post3+a.b"])))]
said.append(str(packaging.specifiers.SpecifierSet("~=1.4,!=1.5").contains("1.4.9")))
said.append(str(packaging.markers.Marker("python_version >= '3.8' and os_name == 'posix'").evaluate()))
said.append(str([(each.name, each.version) for each in metadata.distributions() if "Bundle" in type(each).__name__]))
said.append(resources.files("trainer").joinpath("default_run.toml").read_text())
import tqdm
with contextlib.redirect_stderr(io.StringIO()):
    said.append(str(sum(tqdm.tqdm(range(5)))))
from trainer import cli
for words in (["check", "--world", "2"], ["init", "--help"], ["train", "--help"], ["--help"], ["self", "licences"],
              ["self", "sbom"], ["self", "modules"], ["env", "--help"], ["check", "--optim.lrr", "1"]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        said.append(str(cli.main(words)))
    said.append((out.getvalue() + err.getvalue()).replace(place, "FILE"))
for line in said:
    total.update(line.encode())
print(total.hexdigest())
"""
"""Reads every member, text and module, runs what runs without torch, and prints a digest of all of it."""


class Region(NamedTuple):
    """A part of the file."""

    name: str
    begin: int
    end: int


class Change(NamedTuple):
    """One damaged file: what was done, where, and its bytes."""

    kind: str
    region: str
    what: str
    data: bytes


@dataclass
class Victim:
    """The file that is damaged, and what is known of it."""

    path: Path
    data: bytes = field(init=False)
    regions: list[Region] = field(init=False)
    members: list[zipfile.ZipInfo] = field(init=False)
    commit: str | None = field(init=False)

    def __post_init__(self) -> None:
        self.data = self.path.read_bytes()
        with zipfile.ZipFile(self.path) as archive:
            self.members = archive.infolist()
            self.commit = json.loads(archive.read(layout.BUILD_INFORMATION)).get("commit")
        self.regions = _regions(self.data, self.members)

    def region_of(self, at: int) -> str:
        """The name of the part that a byte lies in."""
        return next(region.name for region in self.regions if region.begin <= at < region.end)

    def region(self, name: str) -> Region:
        """The part of that name."""
        return next(region for region in self.regions if region.name == name)


def _regions(data: bytes, members: list[zipfile.ZipInfo]) -> list[Region]:
    main = layout.HEADER_SIZE + layout.word(data, "main_size")
    sources = main + layout.word(data, "sources_size")
    tail = layout.word(data, "tail_offset")
    found = [
        Region("header", 0, layout.HEADER_SIZE),
        Region("__main__", layout.HEADER_SIZE, main),
        Region("sources that start other Pythons", main, sources),
    ]
    rest = [info for info in members if sources <= info.header_offset < tail]
    for info, after in zip(rest, [*(info.header_offset for info in rest[1:]), tail], strict=True):
        name = "members"
        if info.filename.startswith(f"{layout.FOLDER}code-"):
            name = "code"
        elif info.filename == layout.FILE_TABLE:
            name = "file table"
        elif info.filename == layout.ORIGINALS:
            name = "original texts"
        if found[-1].name == name:
            found[-1] = found[-1]._replace(end=after)
        else:
            found.append(Region(name, info.header_offset, after))
    return [*found, Region("table of contents", tail, len(data))]


def change(victim: Victim, seed: int) -> Change:
    """The damage of that number: of ten, six are single bytes, two truncations, two swapped members."""
    chance = random.Random(seed)
    kind = seed % 10
    if kind < 3:
        return one_byte(victim, chance, chance.randrange(len(victim.data)))
    if kind < 6:  # by chance alone, the small parts would hardly ever be hit
        region = victim.regions[(seed // 10 * 3 + kind) % len(victim.regions)]
        return one_byte(victim, chance, chance.randrange(region.begin, region.end))
    if kind < 8:
        return cut_off(victim, chance)
    made = swapped(victim, chance)
    while made.data == victim.data:  # a member with itself, or with its like
        made = swapped(victim, chance)
    return made


def one_byte(victim: Victim, chance: random.Random, at: int) -> Change:
    """Another value for the byte there."""
    data = bytearray(victim.data)
    data[at] ^= chance.randrange(1, 256)
    return Change("single byte", victim.region_of(at), f"{at}: {victim.data[at]:#04x} -> {data[at]:#04x}", bytes(data))


def cut_off(victim: Victim, chance: random.Random) -> Change:
    """The first part of the file, with at least one byte of ours behind the comment of the first lines."""
    size = len(victim.data)
    near_end = size - 1 - min(int(chance.expovariate(1 / 20000)), size // 2)
    length = chance.choice([chance.randrange(len(layout.SHEBANG) + 1, size), near_end])
    return Change("truncation", victim.region_of(length), f"{length} of {size} bytes", victim.data[:length])


def swapped(victim: Victim, chance: random.Random) -> Change:
    """Two members, or the code of two modules, in each other's place."""
    how = chance.choice(["offsets", "bytes", "code", "repacked"])
    if how == "code":
        return _swapped_code(victim, chance)
    first, second = chance.sample([info for info in victim.members if info.file_size], 2)
    what = f"{how} of {first.filename} and {second.filename}"
    if chance.random() < 0.3:  # among what Python itself looks for
        first = next(info for info in victim.members if info.filename == "__main__.pyc")
        what = f"{how} of {first.filename} and {second.filename}"
    if how == "repacked":
        return Change("swapped members", "whole file", what, _repacked(victim, first, second))
    data = bytearray(victim.data)
    if how == "offsets":
        for info, other in ((first, second), (second, first)):
            at = data.index(b"PK\x01\x02", layout.word(victim.data, "tail_offset"))
            while data[at + 46 : at + 46 + len(info.filename.encode())] != info.filename.encode():
                at = data.index(b"PK\x01\x02", at + 46)
            data[at + 42 : at + 46] = other.header_offset.to_bytes(4, "little")
        return Change("swapped members", "table of contents", what, bytes(data))
    size = min(first.compress_size, second.compress_size)
    places = [info.header_offset + 30 + len(info.filename.encode()) for info in (first, second)]
    _exchange(data, places, size)
    return Change("swapped members", _worst(victim, places), what, bytes(data))


def _exchange(data: bytearray, places: list[int], size: int) -> None:
    """What lies at the two places, each where the other was; where they overlap, the second one wins."""
    first, second = (bytes(data[at : at + size]) for at in places)
    data[places[0] : places[0] + size] = second
    data[places[1] : places[1] + size] = first


def _worst(victim: Victim, places: list[int]) -> str:
    regions = [victim.region_of(at) for at in places]
    return "__main__" if "__main__" in regions else " and ".join(sorted(set(regions)))


def _swapped_code(victim: Victim, chance: random.Random) -> Change:
    """The first so many bytes of two modules' code, exchanged."""
    region = victim.region("code")
    size = chance.randrange(16, 4000)
    places = [chance.randrange(region.begin, region.end - size) for _ in range(2)]
    data = bytearray(victim.data)
    _exchange(data, places, size)
    return Change("swapped members", "code", f"{size} bytes of code at {places[0]} and {places[1]}", bytes(data))


def _repacked(victim: Victim, first: zipfile.ZipInfo, second: zipfile.ZipInfo) -> bytes:
    """As a zip tool would do it that keeps what lies before the first member."""
    out = io.BytesIO()
    out.write(victim.data[: layout.HEADER_SIZE])
    with zipfile.ZipFile(victim.path) as old, zipfile.ZipFile(out, "a", zipfile.ZIP_DEFLATED) as new:
        for info in old.infolist():
            name = {first.filename: second.filename, second.filename: first.filename}.get(info.filename, info.filename)
            new.writestr(zipfile.ZipInfo(info.filename), old.read(name), info.compress_type)
    return out.getvalue()


class Shown(NamedTuple):
    """What a process showed: its exit status (124 where it was ended after SECONDS) and its output."""

    status: int
    output: str
    error: str


def run(words: list[str], place: Path, python: str = sys.executable) -> Shown:
    """Runs it in an environment of its own, the same for all."""
    environment = {"PATH": os.defpath, "HOME": str(place.parent), "PYTHONHASHSEED": "0"}
    try:
        done = subprocess.run(
            [python, *words], cwd=place.parent, capture_output=True, env=environment, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return Shown(124, "", "")
    output, error = (text.decode(errors="replace").replace(str(place), "FILE") for text in (done.stdout, done.stderr))
    return Shown(done.returncode, output, error)


def shows(place: Path, python: str = sys.executable) -> dict[str, Shown]:
    """What a file shows: a run of a command, the digest of all that it gives and does, its own verification."""
    return {
        "run": run([str(place), "check", "--world", "2"], place, python),
        "all": run(["-c", PROBE, str(place)], place, python),
        "verify": run([str(place), "self", "verify"], place, python),
    }


def judge(found: dict[str, Shown], whole: dict[str, Shown]) -> tuple[str, str]:
    """(refused, refused on the way, unaffected or SILENT; which run was silent or the first error)."""
    for name, shown in found.items():
        # whoever is asked to look at every byte has to refuse; the others may show what the whole file shows
        same = name != "verify" and shown.output == whole[name].output
        if shown.status == 0 and not same:
            return "SILENT", f"{name}: {shown.output[-200:]}"
    told = next((shown.error for shown in found.values() if shown.status), "")
    last = told.strip().splitlines()[-2:] or [f"status {found['run'].status}"]
    if found["run"].status:
        return "refused at the start", last[0]
    return ("refused where it is read" if found["all"].status else "unaffected"), last[0]
