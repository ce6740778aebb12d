"""Event files, read back by TensorBoard's own reader."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from trainer.errors import UserError
from trainer.metrics.tensorboard import EventWriter


def read(folder: Path) -> dict[str, list[tuple[int, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def test_scalars_come_back(tmp_path: Path) -> None:
    before = threading.active_count()
    writer = EventWriter(tmp_path / "events", None)
    for step in range(1, 6):
        norms = {"blocks.0": 0.1 * step}
        writer.scalars(step, {"loss": 4.0 / step, "lr": 0.5, "tokens": 1000 * step, "grad_norms": norms, "note": "x"})
    writer.scalars(5, {"validation": {"loss": 2.5}})
    writer.close()
    assert threading.active_count() == before
    found = read(tmp_path / "events")
    assert [step for step, _ in found["loss"]] == [1, 2, 3, 4, 5]
    assert [value for _, value in found["loss"]] == pytest.approx([4.0 / step for step in range(1, 6)])
    assert found["lr"] == [(step, 0.5) for step in range(1, 6)]
    assert found["tokens"][-1] == (5, 5000.0)
    assert found["grad_norms/blocks.0"][-1] == (5, 0.5)
    assert "note" not in found
    assert found["validation/loss"] == [(5, 2.5)]


def test_after_a_resume_no_step_is_there_twice(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from trainer.metrics.tensorboard import EventWriter;"
        "start, end, value = int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]);"
        "writer = EventWriter(Path(sys.argv[1]), start or None);"
        "[writer.scalars(step, {'loss': value}) for step in range(start + 1, end + 1)]; writer.close()"
    )
    for start, end, value in ((0, 9, 1.0), (6, 8, 2.0)):
        arguments = [str(tmp_path), str(start), str(end), str(value)]
        subprocess.run([sys.executable, "-c", code, *arguments], check=True)
    # a name holds whole seconds and the process's number; files are read in the order of their names
    first, second = sorted(tmp_path.iterdir(), key=lambda path: path.stat().st_mtime)
    first.rename(tmp_path / "events.out.tfevents.1000000000.host")
    second.rename(tmp_path / "events.out.tfevents.1000000001.host")
    assert read(tmp_path)["loss"] == [(step, 1.0) for step in range(1, 7)] + [(7, 2.0), (8, 2.0)]


def test_without_tensorboard_the_fix_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "tensorboard"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(UserError, match="tensorboard") as raised:
        EventWriter(tmp_path, None)
    assert raised.value.status == 2
    assert "uv sync --extra tensorboard" in raised.value.fix


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write TensorBoard events"):
        EventWriter(tmp_path / "file" / "events", None)
