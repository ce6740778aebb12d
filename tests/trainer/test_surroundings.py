"""Odd surroundings: closed and full streams, names in any bytes, no memory, no room, no /proc. A run goes on, or says
in one `error:` and one `fix:` line why not; never a traceback."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.beds.runs import PRELOAD, command, environ, flags, losses, warm_trainer
from tests.beds.warm import warm
from trainer.errors import UserError
from trainer.launch import foreign
from trainer.launch.detect import detect
from trainer.surroundings import explained

ROOT = os.geteuid() == 0
FULL = "standard output can't be written to: No space left on device"


def one_error(printed: str) -> str:
    """The error of what was printed: the only one, with its fix, and no traceback."""
    lines = printed.splitlines()
    assert "Traceback" not in printed and "Exception ignored" not in printed, printed
    errors = [line for line in lines if line.startswith("error: ")]
    assert len(errors) == 1 == sum(line.startswith("fix: ") for line in lines), printed
    return errors[0]


def shell(text: str, folder: Path, **variables: str) -> "subprocess.CompletedProcess[bytes]":
    """A shell command, with `$T` for the trainer; what is printed as bytes."""
    trainer = " ".join(command())
    return subprocess.run(
        ["sh", "-c", text],
        cwd=folder,
        env=environ(T=trainer, **variables),
        capture_output=True,
        check=False,
        timeout=60,
    )


def run_file(folder: Path) -> list[str]:
    """Words that train the toy in `folder`."""
    (folder / "run.toml").touch()
    return ["train", "run.toml", *flags(run__folder="run")]


def warm_shell(folder: Path, words: list[str], stdout: str = "", stderr: str = "") -> int:
    """Trains in a process that was forked from a warm one, with these files as its streams."""
    streams = [
        os.open(place or folder / name, os.O_WRONLY | os.O_CREAT) for place, name in ((stdout, "1"), (stderr, "2"))
    ]
    try:
        env = environ(TRAINER_START_LAYERS="exit")
        program = warm(PRELOAD).start(
            ["-m", "trainer", *words], cwd=folder, env=env, stdout=streams[0], stderr=streams[1]
        )
    finally:
        for stream in streams:
            os.close(stream)
    return program.wait(60)


# streams


@pytest.mark.parametrize(
    ("words", "status"),
    [("--version >&-", 0), ("check run.toml >&-", 0), ("check run.toml 2>&-", 0), ("train none.toml 2>&-", 2),
     ("train none.toml >&- 2>&- <&-", 2), ("train none.toml 2>/dev/full", 2)],
)  # fmt: skip
def test_closed_streams_swallow_what_goes_there(tmp_path: Path, words: str, status: int) -> None:
    (tmp_path / "run.toml").write_text('[data]\ntext = ["run.toml"]\n')
    done = shell(f"$T {words}", tmp_path)
    assert done.returncode == status
    assert b"Traceback" not in done.stderr
    assert b"error: " not in done.stdout  # errors never go to standard output


@pytest.mark.parametrize("words", ["--version", "--help", "check run.toml"])
def test_a_full_standard_output_is_told(tmp_path: Path, words: str) -> None:
    (tmp_path / "run.toml").write_text('[data]\ntext = ["run.toml"]\n')
    done = shell(f"$T {words} >/dev/full", tmp_path)
    assert done.returncode == 1
    assert FULL in one_error(done.stderr.decode())


def test_a_reader_that_has_gone_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text('[data]\ntext = ["run.toml"]\n')
    done = shell("($T check run.toml; echo $? >status) | true", tmp_path)
    assert (tmp_path / "status").read_text() == "0\n"
    assert done.stderr == b""


def test_a_run_is_trained_and_saved_although_nothing_can_be_printed(tmp_path: Path) -> None:
    words = run_file(tmp_path)
    assert warm_shell(tmp_path, words, stdout="/dev/full") == 1
    assert FULL in one_error((tmp_path / "2").read_text())
    assert len(losses(tmp_path / "run")) == 6
    assert (tmp_path / "run" / "checkpoints" / "step-00000006").is_dir()
    again = [*words, "--run.folder", "again", "--log.progress", "lines"]
    assert warm_shell(tmp_path, again, stderr="/dev/full") == 0
    assert losses(tmp_path / "again") == losses(tmp_path / "run")


@pytest.mark.parametrize("nproc", ["1", "2"])
def test_a_run_whose_reader_has_gone_ends_well(tmp_path: Path, nproc: str) -> None:
    words = ["-m", "trainer", *run_file(tmp_path), "--nproc", nproc]
    read, write = os.pipe()
    os.close(read)
    env = environ(TRAINER_START_LAYERS="fork,exit")
    try:
        program = warm(PRELOAD).start(words, cwd=tmp_path, env=env, stdout=write, stderr=write)
    finally:
        os.close(write)
    assert program.wait(60) == 0
    assert len(losses(tmp_path / "run")) == 6


def test_closed_descriptors_are_not_given_to_files_of_a_run(tmp_path: Path) -> None:
    words = " ".join(run_file(tmp_path))
    done = shell(f"$T {words} --start.layers exit >&- 2>&- <&-", tmp_path)
    assert done.returncode == 0
    assert len(losses(tmp_path / "run")) == 6  # strict JSON: nothing that was printed is in it


# names and encodings


def test_names_in_any_bytes(tmp_path: Path) -> None:
    odd = os.fsdecode(b"odd-\xff")
    words = ["train", f"{odd}.toml", *flags(run__folder=f"{odd}-run", run__steps="3")]
    (tmp_path / f"{odd}.toml").touch()
    done = warm_trainer(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    # and goes on from there, also with several ranks
    done = warm_trainer(*words, "--run.steps", "6", "--nproc", "2", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "resumed from odd-\\udcff-run/checkpoints/step-00000003" in done.stderr
    assert len(losses(tmp_path / f"{odd}-run")) == 6
    done = warm_trainer("checkpoints", "verify", f"{odd}-run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_names_that_the_locale_has_no_letters_for(tmp_path: Path) -> None:
    words = " ".join([*run_file(tmp_path), "--run.folder", "é", "--start.layers", "fork,exit", "--nproc", "2"])
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = shell(f"$T {words}", tmp_path, **plain)
    assert done.returncode == 0, done.stderr
    assert len(losses(tmp_path / "é")) == 6
    assert "é" in (tmp_path / "é" / "resolved.toml").read_text(encoding="utf-8")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_what_a_stream_can_not_show_is_escaped(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "run.toml").touch()
    (tmp_path / "x").write_text("text")
    done = shell("$T check run.toml --data.text x --run.folder ā", tmp_path, PYTHONIOENCODING=encoding)
    assert done.returncode == 0
    assert b'folder = "\\u0101"' in done.stdout
    done = shell("$T train ā.toml", tmp_path, PYTHONIOENCODING=encoding)
    assert "\\u0101.toml" in one_error(done.stderr.decode())


# values


@pytest.mark.parametrize(
    ("seed", "told"),
    [
        (str(2**70), "must be at most 9223372036854775807"),
        ("-1", "must be at least 0"),
        ("1e9", "is not a whole number"),
    ],
)
def test_absurd_seeds_are_refused(tmp_path: Path, seed: str, told: str) -> None:
    (tmp_path / "run.toml").touch()
    done = shell(f"$T train run.toml --run.seed {seed}", tmp_path)
    assert done.returncode == 2
    assert told in one_error(done.stderr.decode())
    assert seed != "1e9" or b"fix: Write --run.seed 1000000000." in done.stderr


def test_the_largest_seed_trains(tmp_path: Path) -> None:
    done = warm_trainer(*run_file(tmp_path), "--run.seed", str(2**63 - 1), "--nproc", "2", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("folder", "told"),
    [("q.toml", "run.folder: q.toml is a file, not a directory"),
     ("q.toml/deep/er", "run.folder: q.toml is a file, not a directory"),
     ("x" * 300, "can't be written to: File name too long")],
)  # fmt: skip
def test_a_run_folder_that_can_be_none(tmp_path: Path, folder: str, told: str) -> None:
    (tmp_path / "q.toml").write_text('[data]\ntext = ["q.toml"]\n')
    done = shell(f"$T train q.toml --run.folder {folder}", tmp_path)
    assert done.returncode in (1, 2)
    assert told in one_error(done.stderr.decode())


def test_a_current_directory_that_is_gone(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text('[data]\ntext = ["run.toml"]\n')
    done = shell("mkdir gone && cd gone && rmdir ../gone && $T train ../run.toml", tmp_path)
    assert "the current directory has been removed" in one_error(done.stderr.decode())


def test_a_nul_in_a_path(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text('[run]\nfolder = "a\\u0000b"\n')
    done = shell("$T train run.toml", tmp_path)
    assert "run.folder contains a NUL character" in one_error(done.stderr.decode())


def test_the_current_directory_as_run_folder(tmp_path: Path) -> None:
    words = ["train", "run.toml", *flags(run__folder=".")]
    (tmp_path / "run.toml").touch()
    for epochs, told in (("1", ""), ("2", "resumed from checkpoints/step-00000006")):
        done = warm_trainer(*words, "--run.epochs", epochs, cwd=tmp_path)
        assert done.returncode == 0 and told in done.stderr, done.stderr
    assert len(losses(tmp_path)) == 12


# launchers that are not read


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ({"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2"}, "Slurm's srun"),
        ({"SLURM_STEP_NUM_TASKS": "2"}, "SLURM_STEP_NUM_TASKS=2"),
        ({"SLURM_PROCID": "1"}, "SLURM_PROCID=1"),
        ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "4"}, "OMPI_COMM_WORLD_SIZE=4"),
        ({"PMI_RANK": "1", "PMI_SIZE": "2"}, "PMI_RANK=1"),
    ],
)
def test_a_task_of_several_that_knows_no_rank_is_refused(variables: dict[str, str], told: str) -> None:
    with pytest.raises(UserError) as caught:
        foreign.refuse_task(variables, detect(variables))
    assert told in caught.value.what and caught.value.status == 2
    for name in ("RANK=$", "WORLD_SIZE=$", "MASTER_ADDR", "MASTER_PORT"):
        assert name in caught.value.fix
    alone = {**variables, "RANK": "0", "WORLD_SIZE": "1"}
    foreign.refuse_task(alone, detect(alone))


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"SLURM_JOB_ID": "3", "SLURM_PROCID": "0", "SLURM_NTASKS": "8"},  # the script of a batch job
        {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"},  # an interactive job
        {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"},
        {"LSB_DJOB_NUMPROC": "8", "PBS_JOBID": "3", "SGE_TASK_ID": "undefined"},
    ],
)
def test_a_process_that_is_alone_is_not(variables: dict[str, str]) -> None:
    foreign.refuse_task(variables, detect(variables))


def test_it_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    run_file(tmp_path)
    done = shell("$T train run.toml --data.text run.toml", tmp_path, OMPI_COMM_WORLD_RANK="1", OMPI_COMM_WORLD_SIZE="2")
    assert done.returncode == 2
    assert "Open MPI's mpirun has started this process as one of several tasks" in one_error(done.stderr.decode())
    assert not (tmp_path / "run").exists() and not (tmp_path / "runs").exists()


def test_a_folder_in_use_says_by_whom_and_what_was_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from trainer import folder

    holder = subprocess.Popen(
        [sys.executable, "-c", "import pathlib, sys; from trainer import folder\n"
         "with folder.locked(pathlib.Path(sys.argv[1])): print(1, flush=True); sys.stdin.read()", str(tmp_path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ(),
    )  # fmt: skip
    try:
        assert holder.stdout is not None and holder.stdout.readline()
        with (
            pytest.raises(UserError, match=f"another trainer \\(process {holder.pid} on ") as caught,
            folder.locked(tmp_path),
        ):
            pass
        assert "RANK" not in caught.value.what
        monkeypatch.setenv("PBS_TASKNUM", "2")
        with (
            pytest.raises(UserError, match=r"PBS's pbsdsh \(PBS_TASKNUM=2\).* so it trains alone") as caught,
            folder.locked(tmp_path),
        ):
            pass
        assert "MASTER_ADDR" in caught.value.fix
    finally:
        holder.communicate()
    with folder.locked(tmp_path):
        pass


# memory, room, /proc


def test_no_memory_for_torch_itself(tmp_path: Path) -> None:
    words = " ".join(run_file(tmp_path))
    done = shell(f"ulimit -v 1500000; $T {words}", tmp_path)
    assert done.returncode == 3
    told = one_error(done.stderr.decode())
    assert "not enough memory to load a library" in told and "1.4 GiB, by `ulimit -v`" in told


@pytest.mark.parametrize("nproc", ["1", "2"])
def test_a_model_that_no_memory_holds(tmp_path: Path, nproc: str) -> None:
    (tmp_path / "run.toml").write_text('[data]\ntext = ["run.toml"]\nholdout = 0\n')
    width = ["--model.width", "64", "--model.heads", "1", "--model.vocabulary", str(1 << 40), "--memory.meta", "off"]
    small = ["--precision.compute", "fp32", "--data.sequence", "4", "--batch.size", "2", "--run.device", "cpu"]
    done = warm_trainer("train", "run.toml", *width, *small, "--nproc", nproc, cwd=tmp_path)
    assert done.returncode == 1
    assert "not enough memory: torch asked for 262,144.0 GiB at once" in one_error(done.stderr)


class OutOfMemoryError(RuntimeError):
    """As torch's for devices is called."""


@pytest.mark.parametrize(
    ("error", "told", "status"),
    [
        (MemoryError(), "not enough memory", 1),
        (OSError(12, "Cannot allocate memory"), "not enough memory", 1),
        (OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB.\nmore"), "CUDA out of memory. Tried to", 1),
        (OSError(24, "Too many open files", "/a"), "too many open files /a", 3),
        (OSError(28, "No space left on device", "/a"), "can't write /a: No space left on device", 1),
        (RuntimeError("can't start new thread"), "the limit on processes and threads is reached", 3),
    ],
)
def test_what_the_surroundings_refuse_is_told_in_words(error: BaseException, told: str, status: int) -> None:
    shown = explained(error)
    assert shown is not None and told in shown.what and shown.fix.endswith(".") and shown.status == status


@pytest.mark.parametrize("error", [ValueError("x"), KeyError("y"), FileNotFoundError(2, "no", "/a"), UserError("z")])
def test_other_errors_stay_what_they_are(error: BaseException) -> None:
    assert explained(error) is None


@pytest.mark.skipif(not ROOT, reason="mounting needs root")
def test_disks_that_are_full_or_read_only(tmp_path: Path) -> None:
    words = " ".join(run_file(tmp_path))
    mount = "mkdir m && mount -t tmpfs -o {} tmpfs m && $T {}; status=$?; umount m; exit $status"
    done = shell(f"unshare -m sh -c '{mount.format('ro', f'{words} --run.folder m/run')}'", tmp_path)
    assert done.returncode == 1
    assert "the run folder m/run can't be written to: Read-only file system" in one_error(done.stderr.decode())


@pytest.mark.skipif(not ROOT, reason="mounting needs root")
@pytest.mark.parametrize("nproc", ["1", "2"])
def test_a_disk_that_fills_up_costs_no_older_checkpoint(tmp_path: Path, nproc: str) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], check=True)
    try:
        words = [*run_file(tmp_path), "--run.folder", "disk/run", "--nproc", nproc]
        assert warm_trainer(*words, cwd=tmp_path).returncode == 0
        with contextlib.suppress(OSError), (disk / "filler").open("wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass
        done = warm_trainer(*words, "--run.epochs", "2", cwd=tmp_path)
        assert done.returncode == 1
        assert "No space left on device" in one_error(done.stderr)
        (disk / "filler").unlink()
        assert "whole" in warm_trainer("checkpoints", "verify", "disk/run", cwd=tmp_path).stdout
        done = warm_trainer(*words, "--run.epochs", "2", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "resumed from disk/run/checkpoints/step-00000006" in done.stderr
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.skipif(not ROOT, reason="hiding /proc needs root")
def test_without_proc_ranks_are_started_and_train_the_same(tmp_path: Path) -> None:
    words = " ".join(run_file(tmp_path))
    hide = "mount -t tmpfs none /proc"
    done = shell(
        f"unshare -m sh -c '{hide}; $T {words} --nproc 2 --start.layers fork,exit --start.report true'", tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert b"layer fork: skipped (the threads of this process can't be counted (/proc: " in done.stderr
    usual = warm_trainer(*run_file(tmp_path), "--run.folder", "usual", "--nproc", "2", cwd=tmp_path)
    assert usual.returncode == 0
    assert losses(tmp_path / "run") == pytest.approx(losses(tmp_path / "usual"), rel=1e-12)
