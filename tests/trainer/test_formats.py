"""`auto` in [precision]: what the processor has decides, and `check` tells what training uses."""

import platform
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest
import torch

from tests.beds.ranks import on_ranks
from tests.beds.runs import environ, losses, train_here, warm_trainer
from tools import prove_numbers
from trainer import formats, processor, session
from trainer.cli import main
from trainer.formats import choose_attention, choose_compute
from trainer.launch.detect import World
from trainer.schema import Config, Precision

CPUINFO = {
    "processor\t: 0\nflags\t\t: fpu avx512_bf16 avx2\nprocessor\t: 1\n": ["avx512_bf16"],
    "flags\t\t: amx_bf16 avx512f avx512_bf16\n": ["avx512_bf16", "amx_bf16"],
    "flags\t\t: fpu avx2 avx512f\n": [],
    "Features\t: fp asimd i8mm bf16\n": ["bf16"],
    "": [],
}


@pytest.mark.parametrize("text", CPUINFO)
def test_flags_of_the_first_processor_are_read(text: str) -> None:
    assert processor._of_cpuinfo(text) == CPUINFO[text]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="compares two ways of asking an x86 processor")
def test_glibc_the_kernel_and_torch_say_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    found = processor.bf16_instructions()
    assert found == processor._of_cpuinfo(Path("/proc/cpuinfo").read_text())
    told = torch.cpu.get_capabilities()
    assert found == [name for name in ("avx512_bf16", "amx_bf16") if told[name]]
    monkeypatch.setattr(processor, "_of_x86", _unknown)
    assert processor.bf16_instructions() == found


def _unknown() -> list[str]:
    raise AttributeError("__x86_get_cpuid_feature_leaf")


@pytest.mark.parametrize(
    ("compute", "weights", "device", "gpu", "has", "expected"),
    [
        ("auto", "fp32", "cpu", None, ["avx512_bf16"], ("bf16", "this CPU has avx512_bf16")),
        ("auto", "fp32", "cpu", None, ["avx512_bf16", "amx_bf16"], ("bf16", "this CPU has avx512_bf16 and amx_bf16")),
        ("auto", "fp32", "cpu", None, [], ("fp32", "this CPU has no bf16 instructions")),
        ("auto", "bf16", "cpu", None, [], ("bf16", "the format of precision.weights")),
        ("auto", "fp32", "cuda", True, [], ("bf16", "this GPU has bf16")),
        ("auto", "fp32", "cuda", False, ["bf16"], ("fp32", "this GPU has no bf16")),
        ("fp64", "fp32", "cpu", None, ["avx512_bf16"], ("fp64", "as set")),
    ],
)
def test_what_the_device_has_decides(
    compute: str,
    weights: str,
    device: str,
    gpu: bool | None,
    has: list[str],
    expected: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(formats, "bf16_instructions", lambda: has)
    assert choose_compute(Precision(compute=compute, weights=weights), device, gpu) == expected


def test_attention_is_fp32_on_cpu_under_low_formats() -> None:
    assert [choose_attention("auto", each, "cpu") for each in ("fp64", "fp32", "bf16", "fp16")] == ["fp64"] + 3 * [
        "fp32"
    ]
    assert [choose_attention("auto", each, "cuda") for each in ("fp32", "bf16", "fp8")] == ["fp32", "bf16", "bf16"]
    assert choose_attention("bf16", "bf16", "cpu") == "bf16"


@pytest.mark.parametrize("has", [[], ["avx512_bf16"]])
def test_check_tells_what_training_uses(
    has: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(formats, "bf16_instructions", lambda: has)
    (tmp_path / "run.toml").touch()
    settings = {"precision__compute": "auto", "run__steps": "1", "checkpoint__final": "false"}
    assert train_here(tmp_path, **settings) == 0
    used = next(line for line in capsys.readouterr().err.splitlines() if line.startswith("precision.compute "))
    compute, _, why = used.removeprefix("precision.compute ").partition(": ")
    assert compute == ("bf16" if has else "fp32")
    words = ["--run.device", "cpu", "--data.text", "*", "--model.vocabulary", "257"]
    assert main(["check", str(tmp_path / "run.toml"), *words]) == 0
    assert f"# precision            {compute} on cpu ({why})" in capsys.readouterr().out


def followed(rank: int, count: int) -> tuple[str, str]:
    """The format of each rank where rank 0's processor alone has bf16, and what the rank printed."""
    import contextlib
    import io

    said = io.StringIO()
    has: list[str] = [] if rank else ["amx_bf16"]
    with contextlib.redirect_stderr(said), mock.patch.object(formats, "bf16_instructions", lambda: has):
        world = World(rank, count, rank, count, "local")
        found = session._compute(Config(), torch.device("cpu"), None, world)
    return found, said.getvalue()


def test_ranks_on_other_processors_follow_rank_0_and_say_so() -> None:
    first, second = on_ranks(2, followed)
    assert first == ("bf16", "precision.compute bf16: this CPU has amx_bf16\n")
    assert second[0] == "bf16"
    assert second[1].startswith("rank 1: precision.compute bf16, as on rank 0, but this CPU has no bf16 instructions")


def test_every_start_chooses_alike(tmp_path: Path) -> None:
    found = prove_numbers.starts(tmp_path, 3, burners=1, warm=True)
    assert len(found) == 3
    assert len(set(found)) == 1
    assert found[0][0].startswith("precision.compute ")


WITHOUT_PROC = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
if libc.unshare(0x20000): sys.exit(77)
if libc.mount(b"none", b"/", None, 0x44000, None) or libc.mount(b"none", b"/proc", b"tmpfs", 0, None):
    sys.exit(77)
assert not os.path.exists("/proc/cpuinfo")
os.execv(sys.executable, [sys.executable, "-m", "trainer", *sys.argv[1:]])
"""


def test_one_rank_gives_the_same_losses_without_proc(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(prove_numbers.RUN_FILE)
    (tmp_path / "text.txt").write_text("the same text in every run\n" * 300)
    words = ["train", "run.toml", "--log.progress", "none", "--run.folder"]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_PROC, *words, "without"],
        cwd=tmp_path, env=environ(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode == 77:
        pytest.skip("this user may not mount over /proc")
    assert done.returncode == 0, done.stderr
    assert warm_trainer(*words, "with", cwd=tmp_path).returncode == 0
    assert losses(tmp_path / "without") == losses(tmp_path / "with")


def test_torch_is_told_its_vector_instructions_only_where_proc_is_missing(tmp_path: Path) -> None:
    found: dict[str, str] = {}
    processor.prepare_torch(found)
    assert found == {}
    processor.prepare_torch(found, str(tmp_path / "cpuinfo"))
    assert found.get("ATEN_CPU_CAPABILITY", "default").upper() == torch.backends.cpu.get_cpu_capability()
    given = {"ATEN_CPU_CAPABILITY": "default"}
    processor.prepare_torch(given, str(tmp_path / "cpuinfo"))
    assert given == {"ATEN_CPU_CAPABILITY": "default"}


def test_a_run_resumed_with_another_number_of_threads_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train_here(tmp_path, run__steps="1", run__threads="1") == 0
    assert train_here(tmp_path, run__steps="2", run__threads="1") == 0
    assert "threads" not in capsys.readouterr().err
    assert train_here(tmp_path, run__steps="3", run__threads="2") == 0
    said = capsys.readouterr().err
    assert "saved with 1 threads per rank, resumed with 2: the last bits of sums may differ" in said
    torch.set_num_threads(1)
