"""Values in flags, files and the environment; every mistake is named."""

from pathlib import Path

import pytest

from trainer.arguments import split
from trainer.config import from_toml, keys, resolve, to_toml
from trainer.errors import UserError
from trainer.schema import Config


def read(*flags: str, text: str = "", environ: dict[str, str] | None = None) -> Config:
    pairs = split(list(flags), {}, 0, "train").settings
    return resolve("run.toml", pairs, environ or {}, text).config


def refused(*flags: str, text: str = "", environ: dict[str, str] | None = None) -> str:
    with pytest.raises(UserError) as caught:
        read(*flags, text=text, environ=environ)
    assert caught.value.status == 2
    return f"{caught.value.what} | {caught.value.fix}"


@pytest.mark.parametrize("word", ["False", "false", "no", "0", "off"])
def test_false_words_switch_off(word: str) -> None:
    assert read("--model.tied", word).model.tied is False
    assert read(f"--model.tied={word}").model.tied is False


def test_other_words_are_no_truth_values() -> None:
    assert "--model.tied" in refused("--model.tied", "norway")


def test_a_text_setting_keeps_the_word_no() -> None:
    assert read(text='[eval]\nprompt = "no"').eval.prompt == "no"


def test_scientific_notation_is_a_number_everywhere() -> None:
    assert read("--optim.lr", "1e-4").optim.lr == 0.0001
    assert read(text="[optim]\nlr = 1e-4").optim.lr == 0.0001
    assert read(environ={"TRAINER_OPTIM_LR": "1e-4"}).optim.lr == 0.0001


def test_leading_zeros_are_decimal_or_refused() -> None:
    assert read("--run.seed", "010").run.seed == 10
    assert "not valid TOML" in refused(text="[run]\nseed = 010")


def test_a_fraction_is_no_whole_number() -> None:
    assert "--batch.size" in refused("--batch.size", "8.0")
    assert "batch.size" in refused(text="[batch]\nsize = 8.0")


def test_underscores_group_digits() -> None:
    assert read("--run.steps", "1_000").run.steps == 1000


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--run.steps", "-5"),
        ("--model.layers", "0"),
        ("--optim.lr", "nan"),
        ("--optim.lr", "inf"),
        ("--optim.clip", "-1"),
        ("--optim.lr", "0"),
        ("--run.device", "gpu"),
        ("--optim.schedule", "cosin"),
        ("--checkpoint.keep", "0"),
    ],
)
def test_values_out_of_range_name_the_flag(flag: str, value: str) -> None:
    assert flag.strip("-") in refused(flag, value)


def test_checkpoint_every_zero_means_off() -> None:
    assert read("--checkpoint.every", "0").checkpoint.every == 0


def test_prefixes_are_not_taken_for_flags() -> None:
    assert "unknown flag --save" in refused("--save", "3")
    assert "run.step" in refused("--run.step", "3")


def test_command_line_beats_environment_beats_file() -> None:
    found = resolve(
        "run.toml", [("optim.lr", "0.3")], {"TRAINER_OPTIM_LR": "0.2", "TRAINER_OPTIM_CLIP": "2"}, "[optim]\nlr = 0.1"
    )
    assert found.config.optim.lr == 0.3
    assert found.config.optim.clip == 2.0
    printed = to_toml(found)
    assert "lr = 0.3  # --optim.lr" in printed
    assert "clip = 2.0  # TRAINER_OPTIM_CLIP" in printed


def test_a_misspelt_key_names_the_nearest() -> None:
    assert "Did you mean optim.warmup?" in refused(text="[optim]\nwarmupp = 3")
    assert "Did you mean 'optim'?" in refused(text="[optin]\nlr = 3")
    assert "Did you mean --optim.lr?" in refused("--optim.lrr", "3")
    assert "Did you mean optim.lr?" in refused(text="[optim]\nlearning_rate = 3")
    assert "Write lr under [optim]." in refused(text="lr = 3")


@pytest.mark.parametrize(
    ("section", "key", "meant"),
    [
        ("run", "lr", "optim.lr"),
        ("run", "batch_size", "batch.size"),
        ("batch", "batch_size", "batch.size"),
        ("train", "steps", "run.steps"),
        ("model", "seq_len", ""),
        ("optimizer", "lr", "optim.lr"),
        ("data", "seed", "run.seed"),
        ("optim", "decays", "optim.decay"),
        ("parallel", "stratgy", "parallel.strategy"),
        ("run", "xyzzy", ""),
    ],
)
def test_a_setting_in_the_wrong_section_is_found_by_its_name(section: str, key: str, meant: str) -> None:
    fix = refused(f"--{section}.{key}", "1").partition(" | ")[2]
    assert fix == (f"Did you mean --{meant}?" if meant else "`trainer check` lists every setting.")


def test_a_setting_without_its_section_is_told_where_it_belongs() -> None:
    assert "Did you mean --optim.lr?" in refused("--lr", "1")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("TRAINER_LR", "TRAINER_OPTIM_LR"),
        ("TRAINER_OPTM_LR", "TRAINER_OPTIM_LR"),
        ("TRAINER_OPTIM_LRR", "TRAINER_OPTIM_LR"),
        ("TRAINER_STEPS", "TRAINER_RUN_STEPS"),
        ("TRAINER_ENV_STOER", "TRAINER_ENV_STORE"),
        ("TRAINER_SNAPSHOTDIR", "TRAINER_SNAPSHOT_DIR"),
        ("TRAINER_BATCHSIZE", "TRAINER_BATCH_SIZE"),
    ],
)
def test_an_unknown_variable_is_refused_with_the_nearest(name: str, meant: str) -> None:
    assert refused(environ={name: "3"}) == (
        f"unknown environment variable {name} | Did you mean {meant}? Otherwise unset {name}."
    )


def test_variables_that_are_no_settings_and_those_of_others_are_let_alone() -> None:
    read(environ={"TRAINER_VERIFY": "all", "TRAINER_ENV_STORE": "/x", "TRAINERS_LR": "3", "LR": "3"})


def test_all_mistakes_are_reported_at_once() -> None:
    with pytest.raises(UserError) as caught:
        read(
            "--optim.clip",
            "-1",
            "--model.depth",
            "3",
            text='[run]\nlr = 3\nsteps = "many"\n[optin]\nlr = 3\n[data]\nholdout = -1',
            environ={"TRAINER_LR": "3"},
        )
    told = [caught.value.what, *(other.what for other in caught.value.others)]
    assert told == [
        "unknown setting run.toml: [run] lr",
        "run.toml: run.steps must be a whole number, not a text: 'many'",
        "run.toml: unknown section [optin]",
        "run.toml: data.holdout must be at least 0, not -1",
        "unknown environment variable TRAINER_LR",
        "--optim.clip must be at least 0, not -1.0",
        "unknown setting --model.depth",
    ]
    assert all(other.fix and other.status == 2 for other in caught.value.others)


def test_all_contradictions_are_reported_at_once() -> None:
    with pytest.raises(UserError) as caught:
        read(
            "--batch.size",
            "8",
            "--batch.tokens",
            "1000",
            "--data.text",
            "a",
            "--data.jsonl",
            "b",
            "--run.device",
            "gpu",
        )
    assert [len(caught.value.others), caught.value.what] == [3, "data.text and data.jsonl are set at once"]


def test_a_byte_order_mark_is_no_mistake(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_bytes(b"\xef\xbb\xbf[run]\nsteps = 7\n")
    assert resolve(str(tmp_path / "run.toml"), [], {}).config.run.steps == 7


def test_wrong_types_in_a_file() -> None:
    assert "a whole number, not a text" in refused(text='[run]\nsteps = "many"')
    assert "a number, not a boolean" in refused(text="[optim]\nlr = true")
    assert "a list" in refused(text="[optim]\nbetas = 3")


def test_a_run_file_that_is_missing_or_not_text(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot read"):
        resolve(str(tmp_path / "none.toml"), [], {})
    (tmp_path / "bad.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match="not UTF-8"):
        resolve(str(tmp_path / "bad.toml"), [], {})


def test_tables_take_inner_keys() -> None:
    found = read("--model.options.depth", "3", "--model.options.name", "small", text="[model]\noptions = {depth = 1}")
    assert found.model.options == {"depth": 3, "name": "small"}


def test_lists_from_flags() -> None:
    assert read("--data.text", "a.txt,b.txt").data.text == ["a.txt", "b.txt"]
    assert read("--data.text", '["a,b.txt"]').data.text == ["a,b.txt"]
    assert read("--optim.betas", "0.8,0.9").optim.betas == [0.8, 0.9]
    assert read(text='[data]\ntext = "a.txt"').data.text == ["a.txt"]


def test_what_is_printed_reads_back_the_same() -> None:
    config = read("--eval.prompt", 'a "quoted"\n\x7f line', "--model.options.k", "[1, 2]", "--optim.lr", "1e-7")
    again = from_toml(to_toml(resolve("x", [], {}, "")), "x")
    assert again == Config()
    from trainer.config import Resolved

    assert from_toml(to_toml(Resolved(config, {})), "x") == config


def test_defaults_are_not_shared_between_configurations() -> None:
    first, second = Config(), Config()
    first.data.text.append("x")
    assert second.data.text == []


def test_every_setting_has_help() -> None:
    for section, key, declared in keys():
        assert len(declared.help) > 5, f"{section}.{key}"
