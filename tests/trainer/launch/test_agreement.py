"""Ranks that differ: which are named, with what, and that all of them stop."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
from torch.distributed import (  # type: ignore[attr-defined]  # public, but not in its __all__
    HashStore,
    Store,
    TCPStore,
)

from trainer.errors import UserError
from trainer.launch import agreement
from trainer.launch.agreement import meet, require_build_of_parent, require_same, require_same_in_folder
from trainer.launch.facts import Build, Fact, Rank

OLD = Build("a" * 64, "1" * 64, "1.0", "host-a", "/old.pyz")
NEW = Build("b" * 64, "1" * 64, "1.0", "host-b", "/new.pyz")
RELOCKED = Build("c" * 64, "2" * 64, "1.0", "host-c", "/relocked.pyz")
WHERE = "host:1234"


def setting(name: str, value: str, origin: str = "run.toml") -> Fact:
    """As the run file's settings are compared."""
    return Fact("settings", name, value, f"{name} = {value} ({origin})")


def client(port: int) -> Store:
    """A rank's own: one that waits serves no other thread."""
    return TCPStore("127.0.0.1", port, is_master=False)


def run_of(store: Store | int, ranks: list[Rank], facts: list[list[Fact]]) -> list[str]:
    """What each rank is told: "" or the error. `store`: one for all, or the port of one that outlives them."""

    def live(number: int) -> str:
        outlives = isinstance(store, int)
        try:
            meeting = meet(client(store) if isinstance(store, int) else store, ranks[number], WHERE, 20, outlives)
            require_same(meeting, "run", facts[number], 20)
            require_same(meeting, "inputs", [], 20)
        except UserError as error:
            return f"{error.status} {error.what}"
        return ""

    with ThreadPoolExecutor(len(ranks)) as pool:
        return list(pool.map(live, range(len(ranks))))


def ranks_on(hosts: list[str], job: dict[str, str] | None = None) -> list[Rank]:
    return [Rank(number, len(hosts), host, 100 + number, job or {}) for number, host in enumerate(hosts)]


def told(*facts: list[Fact], hosts: list[str] | None = None) -> str:
    """What all ranks are told alike."""
    ranks = ranks_on(hosts or [f"host-{number}" for number in range(len(facts))])
    (answer,) = set(run_of(HashStore(), ranks, list(facts)))
    return answer


def builds(*found: Build) -> str:
    return told(*[[build.fact()] for build in found], hosts=[build.host for build in found])


def test_ranks_of_one_build_go_on() -> None:
    assert builds(OLD, OLD._replace(host="host-b", path="/elsewhere.pyz"), OLD) == ""


def test_the_odd_one_is_named_wherever_it_stands() -> None:
    usual = "build aaaaaaaaaaaa, lock 111111111111 (/old.pyz)"
    odd = "on host-b has build bbbbbbbbbbbb, lock 111111111111 (/new.pyz)"
    for number in range(3):
        found = [OLD] * 3
        found[number] = NEW
        expected = f"3 the ranks do not run the same build: rank {number} {odd}; the 2 other ranks have {usual}"
        assert builds(*found) == expected


def test_many_odd_ones_are_counted() -> None:
    answer = builds(*[OLD] * 7, *[NEW] * 5, RELOCKED)
    assert answer.count(" on host-") == agreement.MOST_NAMED
    assert "; 2 more differ; the 7 other ranks have build aaaaaaaaaaaa" in answer


def test_a_checkout_is_no_built_file() -> None:
    plain = Build("", "", "1.0", "host-d", "/env")
    assert "rank 1 on host-d has no built file, version 1.0 (/env)" in builds(OLD, plain)
    assert builds(plain, plain._replace(path="/other")) == ""


def test_the_first_setting_that_differs_is_named_with_both_values() -> None:
    mine = [setting("run.seed", "0"), setting("optim.lr", "0.001"), setting("optim.clip", "1.0")]
    other = [setting("run.seed", "0"), setting("optim.lr", "0.002", "--optim.lr"), setting("optim.clip", "2.0")]
    assert told(mine, other) == (
        "2 the ranks do not have the same settings: rank 1 on host-1 has optim.lr = 0.002 (--optim.lr); "
        "the other rank has optim.lr = 0.001 (run.toml); optim.clip differs too"
    )
    assert told(mine, mine, mine) == ""


def test_another_build_is_told_before_what_follows_from_it() -> None:
    answer = told(
        [OLD.fact(), setting("a.b", "1")], [NEW.fact(), setting("a.b", "2")], [OLD.fact(), setting("a.b", "1")]
    )
    assert answer.startswith("3 the ranks do not run the same build: rank 1 ")


def test_a_setting_that_only_one_has() -> None:
    assert "rank 1 on host-1 has no a.b; the other rank has a.b = 1" in told([setting("a.b", "1")], [])


def test_jobs_that_meet_by_accident_part() -> None:
    first, second = ranks_on(["h", "h"], {"SLURM_JOB_ID": "17"})[0], ranks_on(["h", "h"], {"SLURM_JOB_ID": "18"})[1]
    (answer,) = set(run_of(HashStore(), [first, second], [[], []]))
    assert answer == (
        f"1 two jobs meet at {WHERE}: rank 1 on h (process 101) has SLURM_JOB_ID=18, "
        "rank 0 on h (process 100) has SLURM_JOB_ID=17"
    )
    # a rank that was started over ssh lacks the variable, and one of another launcher has others
    assert run_of(HashStore(), [first, second._replace(job={"PBS_JOBID": "3"})], [[], []]) == ["", ""]


def test_another_number_of_ranks_is_another_job() -> None:
    first, second = ranks_on(["h", "h"])[0], ranks_on(["h", "h", "h"])[1]
    (answer,) = set(run_of(HashStore(), [first, second], [[], []]))
    assert "rank 1 on h (process 101) has WORLD_SIZE=3, rank 0 on h (process 100) has WORLD_SIZE=2" in answer


def test_two_processes_as_one_rank() -> None:
    first, second = ranks_on(["h", "h"])
    answers = run_of(HashStore(), [first, second, second._replace(process=999)], [[], [], []])
    assert any("two processes have come to host:1234 as rank 1" in answer and "999" in answer for answer in answers[1:])


def test_a_store_that_outlives_its_ranks_serves_the_next_ones() -> None:
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    ranks, same = ranks_on(["h", "h", "h"]), [[setting("a.b", "1")]] * 3
    assert run_of(store.port, ranks, same) == ["", "", ""]
    # the next start differs: nothing of the first verdict counts
    answers = run_of(store.port, ranks, [*same[:2], [setting("a.b", "2")]])
    assert len(set(answers)) == 1 and "rank 2 on h has a.b = 2" in answers[0]
    # and the one after that again does not
    assert run_of(store.port, ranks, same) == ["", "", ""]


def test_ranks_that_find_what_dead_ones_left_go_over_to_the_new_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agreement, "LOOK_SECONDS", 0.2)
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    first, second = ranks_on(["h", "h"])
    meet(store, first, WHERE, 20, True)  # and then rank 0 dies
    with ThreadPoolExecutor(2) as pool:
        meeting = meet(client(store.port), second, WHERE, 20, True)
        late = pool.submit(require_same, meeting, "run", [], 20)
        early = pool.submit(lambda: require_same(meet(client(store.port), first, WHERE, 20, True), "run", [], 20))
        assert late.result().prefix == early.result().prefix != meeting.prefix


def test_a_rank_that_does_not_come_is_missed() -> None:
    store = HashStore()
    store.set_timeout(timedelta(seconds=0.2))
    with pytest.raises(RuntimeError):
        require_same(meet(store, ranks_on(["h", "h"])[0], WHERE, 0.2), "run", [], 0.2)


def test_ranks_of_one_machine_compare_with_the_first(tmp_path: Path) -> None:
    first, second, third = ranks_on(["h", "h", "h"])
    require_same_in_folder(tmp_path, "run", second, [setting("a.b", "1")])
    require_same_in_folder(tmp_path, "run", first, [setting("a.b", "1")])
    with pytest.raises(UserError, match=r"rank 2 on h has a.b = 2 .*; the other rank has a.b = 1") as caught:
        require_same_in_folder(tmp_path, "run", third, [setting("a.b", "2")])
    assert caught.value.status == 2


def test_a_rank_of_nproc_has_the_build_of_its_parent() -> None:
    require_build_of_parent(1, OLD, f"{OLD.build} {OLD.lock}")
    require_build_of_parent(1, Build("", "", "1.0", "host-a", "/env"), " ")
    with pytest.raises(
        UserError, match=r"rank 1 has build bbbbbbbbbbbb, .* started it has build aaaaaaaaaaaa"
    ) as caught:
        require_build_of_parent(1, NEW, f"{OLD.build} {OLD.lock}")
    assert caught.value.status == 3
