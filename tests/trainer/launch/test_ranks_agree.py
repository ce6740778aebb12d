"""Real ranks under a launcher that only sets variables: they train together, or each is told why not."""

import os
import socket
import subprocess
from pathlib import Path

import pytest

from tests.beds.runs import PRELOAD, ROOT, command, environ, flags, losses, warm_trainer
from tests.beds.warm import Program, warm

MODEL = "from tests.trainer.toy import ToyModel, token_loss\n"
DATA = """
from pathlib import Path
from tests.trainer.toy_data import Sequences
def data():
    return Sequences(count=int(Path("count.txt").read_text()))
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Ranks:
    """Ranks that are started one by one; `folder` has a folder for each that is named."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.programs: list[tuple[Program, Path]] = []

    def start(self, rank: int, *arguments: str, cwd: str = "", size: int = 2, **variables: str) -> None:
        place = self.folder / cwd
        place.mkdir(exist_ok=True)
        (place / "run.toml").touch()
        output = self.folder / f"printed-{len(self.programs)}"
        world = {"RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(self.port)}
        env = environ(**world, **{"TRAINER_START_LAYERS": "exit", **variables})
        env["PYTHONPATH"] = f"{ROOT}{os.pathsep}{place}"
        words = ["-m", "trainer", "train", "run.toml", *flags(), "--fault.timeout", "30", *arguments]
        with output.open("wb") as file:
            program = warm(PRELOAD).start(words, cwd=place, env=env, stdout=file.fileno(), stderr=file.fileno())
        self.programs.append((program, output))

    def end(self) -> list[tuple[int, str]]:
        """Status and what was printed, of each."""
        return [(program.wait(100), output.read_text()) for program, output in self.programs]


@pytest.fixture
def ranks(tmp_path: Path) -> Ranks:
    return Ranks(tmp_path)


def error_of(printed: str) -> str:
    """Its one error, which a fix follows and no traceback."""
    assert "Traceback" not in printed and "frame #" not in printed, printed
    lines = printed.splitlines()
    errors = [line for line in lines if line.startswith("error: ")]
    assert len(errors) == 1 and lines[lines.index(errors[0]) + 1].startswith("fix: "), printed
    return errors[0]


def test_a_finished_run_is_left_alone_by_all_ranks(ranks: Ranks, tmp_path: Path) -> None:
    here = ("--run.folder", str(tmp_path / "run"))
    for rank in (0, 1, 0, 1):
        ranks.start(rank, *here)
        if rank == 1:
            ended = ranks.end()
            assert [status for status, _ in ended] == [0, 0], ended
            ranks.programs.clear()
    assert "nothing is left to do" in ended[0][1]
    assert ended[1][1] == ""


def test_same_settings_train_as_under_nproc(ranks: Ranks, tmp_path: Path) -> None:
    # what may differ does: threads, folder of prepared data, how the start goes
    ranks.start(0, "--run.folder", str(tmp_path / "together"))
    ranks.start(1, "--run.folder", str(tmp_path / "together"), "--run.threads", "2", "--log.every", "3")
    assert [status for status, _ in ranks.end()] == [0, 0]
    (tmp_path / "run.toml").touch()
    done = warm_trainer("train", "run.toml", *flags(run__folder="nproc"), "--nproc", "2", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert losses(tmp_path / "together") == losses(tmp_path / "nproc")


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("run.seed", ("0", "5")),
        ("optim.lr", ("0.5", "0.25")),
        ("optim.clip", ("0.0", "1.0")),
        ("batch.size", ("4", "8")),
    ],
)
def test_a_setting_that_differs_is_named_on_both_sides(
    ranks: Ranks, tmp_path: Path, name: str, values: tuple[str, str]
) -> None:
    ranks.start(0)
    ranks.start(1, f"--{name}", values[1])
    for status, printed in ranks.end():
        assert status == 2
        told = error_of(printed)
        assert f"rank 1 on {socket.gethostname()} has {name} = {values[1]} (--{name})" in told
        assert f"the other rank has {name} = {values[0]}" in told
    assert not list(tmp_path.rglob("metrics.jsonl"))


def test_code_of_the_users_that_differs(ranks: Ranks, tmp_path: Path) -> None:
    own = [
        "--model.build",
        "own.py:ToyModel",
        "--model.loss",
        "own.py:token_loss",
        "--run.folder",
        str(tmp_path / "run"),
    ]
    for rank, place in enumerate("ab"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "own.py").write_text(MODEL + f"# version {place if rank else 'a'}\n")
    ranks.start(0, *own, cwd="a")
    ranks.start(1, *own, cwd="b")
    for status, printed in ranks.end():
        assert status == 2
        assert f"has {tmp_path / 'b' / 'own.py'} (sha256 " in error_of(printed)


def test_data_that_differ(ranks: Ranks, tmp_path: Path) -> None:
    for place, count in (("a", "24"), ("b", "32")):
        (tmp_path / place).mkdir()
        (tmp_path / place / "own_data.py").write_text(DATA)
        (tmp_path / place / "count.txt").write_text(count)
    for rank, place in enumerate("ab"):
        ranks.start(rank, "--data.dataset", "own_data.py:data", "--run.folder", str(tmp_path / "run"), cwd=place)
    for status, printed in ranks.end():
        assert status == 1
        assert "the ranks do not have the same training data: rank 1 on" in error_of(printed)


def test_on_one_host_the_run_folder_tells_jobs_apart(ranks: Ranks, tmp_path: Path) -> None:
    ranks.start(0, "--run.folder", "one")
    ranks.start(1, "--run.folder", "other")
    for status, printed in ranks.end():
        assert status == 2
        assert f"has run.folder = {tmp_path / 'other'}; the other rank has run.folder = {tmp_path / 'one'}" in error_of(
            printed
        )


def test_two_jobs_at_one_port_part(ranks: Ranks) -> None:
    ranks.start(0, SLURM_JOB_ID="17")
    ranks.start(1, SLURM_JOB_ID="18")
    for status, printed in ranks.end():
        assert status == 1
        told = error_of(printed)
        assert "two jobs meet at 127.0.0.1:" in told and "SLURM_JOB_ID=17" in told and "SLURM_JOB_ID=18" in told


def test_a_second_job_at_a_taken_port_is_told_and_the_first_trains_on(ranks: Ranks, tmp_path: Path) -> None:
    from torch.distributed import TCPStore  # type: ignore[attr-defined]  # public, but not in its __all__

    from trainer.launch.agreement import meet
    from trainer.launch.facts import own_rank

    store = TCPStore("127.0.0.1", ranks.port, is_master=True, wait_for_workers=False)
    meet(store, own_rank(0, 2, {"SLURM_JOB_ID": "17"}), "", 30)
    meet(TCPStore("127.0.0.1", ranks.port), own_rank(1, 2, {"SLURM_JOB_ID": "17"})._replace(process=7), "", 30)
    ranks.start(0)
    ranks.start(1)
    (first, told), (second, second_told) = ranks.end()
    assert first == second == 1
    expected = f"rank 0 on {socket.gethostname()} (process {os.getpid()}) of another job holds it (WORLD_SIZE=2, SLURM"
    assert expected in error_of(told)
    assert "two processes have come to" in error_of(second_told) and "process 7 on" in error_of(second_told)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_mute_listener_is_told_within_the_timeout(ranks: Ranks, rank: int) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", ranks.port))
        server.listen(5)
        ranks.start(rank, "--fault.timeout", "2")
        ((status, printed),) = ranks.end()
    assert status == 1
    assert "something listens there, accepts connections and never answers: it is no rank" in error_of(printed)


def test_a_rank_0_that_never_comes(ranks: Ranks) -> None:
    ranks.start(1, "--fault.timeout", "1")
    ((status, printed),) = ranks.end()
    assert status == 1
    assert "nothing listens there: rank 0 has not started" in error_of(printed)


def test_ranks_that_are_started_have_the_settings_of_their_parent(tmp_path: Path) -> None:
    # a pipe gives its text once: a rank that read the run file too would wait for another text for ever
    os.mkfifo(tmp_path / "run.toml")
    words = command("train", "run.toml", "--nproc", "2", "--start.layers", "", "--run.folder", "run")
    process = subprocess.Popen(words, cwd=tmp_path, env=environ(), stderr=subprocess.PIPE, text=True)
    (tmp_path / "run.toml").write_text('[data]\ntext = ["of-the-parent.txt"]\n[run]\ndevice = "cpu"\n')
    _, printed = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "rank 0: " in error_of(printed) and "of-the-parent.txt" in error_of(printed)


def test_settings_survive_the_way_to_a_rank() -> None:
    from trainer.config import resolve
    from trainer.handover import from_text, to_text

    text = '[model]\noptions = {depth = 3, name = "é", rates = [0.1, 1e-300]}\n[data]\ntext = ["a", "b"]\n'
    before = resolve("run.toml", [("optim.lr", "0.3")], {"TRAINER_RUN_SEED": "7"}, text)
    after = from_text(to_text(before))
    assert (after.config, after.origins) == (before.config, before.origins)
