"""Which launcher the environment variables tell of."""

import subprocess
import sys

import pytest

from trainer.errors import UserError
from trainer.launch.detect import World, detect

TORCHRUN = {
    "TORCHELASTIC_RUN_ID": "none",
    "RANK": "5",
    "LOCAL_RANK": "1",
    "WORLD_SIZE": "8",
    "LOCAL_WORLD_SIZE": "4",
    "MASTER_ADDR": "node0",
    "MASTER_PORT": "29500",
}
LOCAL = {
    "TRAINER_LAUNCH_DIR": "/dev/shm/trainer-launch-0/attempt-0",
    "TRAINER_LAUNCH_PARENT": "4711",
    "RANK": "1",
    "LOCAL_RANK": "1",
    "WORLD_SIZE": "2",
    "LOCAL_WORLD_SIZE": "2",
}
BY_HAND = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}


def test_no_launcher() -> None:
    assert detect({}) == World(0, 0, 1, 1, "none")
    assert detect({"RANK": "", "WORLD_SIZE": "", "LOCAL_RANK": ""}).launcher == "none"
    # a cluster's profile may export these for all jobs
    assert detect({"MASTER_ADDR": "node0", "MASTER_PORT": "29500"}).launcher == "none"


def test_torchrun() -> None:
    world = detect(TORCHRUN)
    assert world == World(5, 1, 8, 4, "torchrun")
    assert not world.one_machine


def test_own_parent() -> None:
    world = detect(LOCAL)
    assert world == World(1, 1, 2, 2, "local")
    assert world.one_machine


def test_torchrun_started_inside_a_rank_of_ours() -> None:
    assert detect(LOCAL | TORCHRUN).launcher == "torchrun"


def test_variables_set_by_hand() -> None:
    assert detect(BY_HAND) == World(1, 1, 2, 2, "env")
    assert detect(BY_HAND | {"MASTER_ADDR": "localhost"}) == World(1, 1, 2, 2, "env")
    several = BY_HAND | {"MASTER_ADDR": "node0", "WORLD_SIZE": "4", "RANK": "3"}
    assert detect(several | {"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}) == World(3, 1, 4, 2, "env")
    assert detect({"RANK": "0", "WORLD_SIZE": "1"}) == World(0, 0, 1, 1, "env")


@pytest.mark.parametrize("base", [TORCHRUN, LOCAL, BY_HAND], ids=["torchrun", "local", "by-hand"])
def test_missing_variable_is_named(base: dict[str, str]) -> None:
    marks = {"TORCHELASTIC_RUN_ID", "TRAINER_LAUNCH_DIR"}
    for name in base.keys() - marks:
        for lacking in ({key: value for key, value in base.items() if key != name}, base | {name: ""}):
            with pytest.raises(UserError, match=f"but {name} is not set") as caught:
                detect(lacking)
            assert caught.value.status == 2
            assert caught.value.fix


@pytest.mark.parametrize("name", ["RANK", "WORLD_SIZE", "LOCAL_RANK"])
def test_single_left_over_variable_is_refused(name: str) -> None:
    with pytest.raises(UserError, match=f"{name} is set, but") as caught:
        detect({name: "1"})
    assert caught.value.fix.startswith(f"Unset {name} to train alone")


@pytest.mark.parametrize("lacking", ["LOCAL_RANK", "LOCAL_WORLD_SIZE"])
def test_place_on_the_machine_is_not_guessed(lacking: str) -> None:
    environ = BY_HAND | {"MASTER_ADDR": "node0", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    del environ[lacking]
    with pytest.raises(UserError, match=f"{lacking} is not"):
        detect(environ)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"RANK": "8"}, "RANK is 8 but WORLD_SIZE is 8"),
        ({"LOCAL_RANK": "4"}, "LOCAL_RANK is 4 but LOCAL_WORLD_SIZE is 4"),
        ({"LOCAL_WORLD_SIZE": "9"}, "LOCAL_WORLD_SIZE is 9 but WORLD_SIZE is 8"),
        ({"LOCAL_WORLD_SIZE": "8"}, "RANK is 5 and LOCAL_RANK is 1 though all 8 ranks are on one machine"),
        ({"RANK": "-1"}, "RANK is '-1'"),
        ({"RANK": "one"}, "RANK is 'one'"),
        ({"RANK": "²"}, "RANK is '²'"),
        ({"WORLD_SIZE": "0"}, "WORLD_SIZE is '0'"),
        ({"MASTER_PORT": "70000"}, "MASTER_PORT is 70000"),
    ],
)
def test_contradictions_are_named(change: dict[str, str], told: str) -> None:
    with pytest.raises(UserError) as caught:
        detect(TORCHRUN | change)
    assert caught.value.what == told
    assert caught.value.status == 2


def test_importing_the_room_imports_no_torch() -> None:
    code = (
        "import sys, trainer.launch.detect, trainer.launch.local, trainer.launch.child, trainer.launch.stop\n"
        "import trainer.launch.comm; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=100)
