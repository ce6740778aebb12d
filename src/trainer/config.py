"""Run file + environment + flags -> one checked `Config`, and where each value came from. No torch.

Later wins: defaults, the run file, `TRAINER_<SECTION>_<KEY>` variables, `--section.key value` flags. All mistakes are
reported at once, with the keys as the user wrote them and the nearest ones that exist.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from trainer import startup
from trainer.errors import UserError, together
from trainer.schema import Config
from trainer.settings import Section, Setting
from trainer.values import check, from_text, literal, typed


class Resolved:
    """A configuration and the origin of each value: `origins["optim.lr"]` is "default", "run.toml", "--optim.lr"..."""

    def __init__(self, config: Config, origins: dict[str, str]) -> None:
        self.config = config
        self.origins = origins


def resolve(
    run_file: str | None, flags: Sequence[tuple[str, str]], environ: Mapping[str, str], text: str | None = None
) -> Resolved:
    """Read and check everything. `text` replaces the file's content (the embedded default run).

    Raises one UserError (status 2) that carries every mistake of the file, the environment and the flags.
    """
    config, origins = Config(), {}
    for section, key, _ in keys():
        origins[f"{section}.{key}"] = "default"
    wrong: list[UserError] = []
    if run_file is not None:
        wrong += _apply_file(config, origins, run_file, text)
    for name, value in sorted(environ.items()):
        if name.startswith("TRAINER_"):
            wrong += _mistakes(_apply_variable, config, origins, name, value)
    for name, value in flags:
        wrong += _mistakes(_set_text, config, origins, name, value, f"--{name}")
    if not wrong:
        wrong = list(_check_together(config))
    if wrong:
        raise together(wrong)
    return Resolved(config, origins)


def _mistakes(action: Callable[..., None], *arguments: Any) -> list[UserError]:
    """Return what `action` refuses."""
    try:
        action(*arguments)
    except UserError as error:
        return [error]
    return []


def keys() -> list[tuple[str, str, Setting]]:
    """(section, key, declaration) of every setting, in the order of the schema."""
    return [
        (section, key, section_type.__dict__[key])
        for section, section_type in Config.__annotations__.items()
        for key in section_type.__annotations__
    ]


def from_toml(text: str, origin: str) -> Config:
    """A configuration written by `to_toml`, for reading a run folder back."""
    return resolve(origin, (), {}, text).config


def to_toml(resolved: Resolved, comments: bool = True) -> str:
    """The whole configuration as a run file; values that are not defaults carry their origin as a comment."""
    lines: list[str] = []
    section_before = ""
    for section, key, _ in keys():
        if section != section_before:
            lines += ["", f"[{section}]"] if lines else [f"[{section}]"]
            section_before = section
        value = getattr(getattr(resolved.config, section), key)
        origin = resolved.origins.get(f"{section}.{key}", "default")
        note = f"  # {origin}" if comments and origin != "default" else ""
        lines.append(f"{key} = {toml_value(value)}{note}")
    return "\n".join(lines) + "\n"


def toml_value(value: object) -> str:
    """One TOML value on one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value) if value == value and not math.isinf(value) else str(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        import json

        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list):
        return "[" + ", ".join(toml_value(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{toml_value(str(k))} = {toml_value(v)}" for k, v in value.items()) + "}"
    raise UserError(f"a {type(value).__name__} cannot stand in a run file", "Use text, numbers, lists or tables.", 2)


def _read(path: str) -> str:
    try:
        with open(path, "rb") as file:
            raw = file.read()
    except OSError as error:
        raise UserError(
            f"cannot read the run file {path}: {error.strerror}",
            f"Check the path; `trainer init {path}` writes a run file to start from.",
            2,
        ) from None
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text (byte {error.start})", "Save it as UTF-8.", 2) from None


def _apply_file(config: Config, origins: dict[str, str], path: str, text: str | None) -> Iterator[UserError]:
    """Take over the values of a run file; yield what is wrong with it."""
    import tomllib

    try:
        table = tomllib.loads((_read(path) if text is None else text).removeprefix("\ufeff"))
    except UserError as error:
        yield error
        return
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        yield UserError(f"{path} is not valid TOML: {why}", "Correct that line of the run file.", 2)
        return
    for section, values in table.items():
        if section not in Config.__annotations__:
            yield _no_section(path, section, values)
        elif not isinstance(values, dict):
            yield UserError(f"{path}: {section} must be a section", f"Write [{section}] on a line of its own.", 2)
        else:
            for key, value in values.items():
                yield from _mistakes(_set_value, config, origins, (section, key), value, path)


def _set_value(config: Config, origins: dict[str, str], name: tuple[str, str], value: object, path: str) -> None:
    section, key = name
    declared = _declaration(f"{section}.{key}", f"{path}: [{section}] {key}", "")
    converted = typed(value, _type_of(section, key), f"{path}: {section}.{key}")
    check(declared, converted, f"{path}: {section}.{key}")
    setattr(getattr(config, section), key, converted)
    origins[f"{section}.{key}"] = path


def _no_section(path: str, section: str, values: object) -> UserError:
    from trainer import suggestions

    sections = list(Config.__annotations__)
    listed = "The sections are " + ", ".join(f"[{s}]" for s in sections) + "."
    if isinstance(values, dict):
        return UserError(
            f"{path}: unknown section [{section}]", suggestions.did_you_mean(section, sections) or listed, 2
        )
    close = suggestions.setting("", section)
    hint = f"Write {close.partition('.')[2]} under [{close.partition('.')[0]}]." if close else listed
    return UserError(f"{path}: the setting {section} is in no section", hint, 2)


def _declaration(name: str, shown: str, prefix: str) -> Setting:
    """Return what is declared of `section.key`; `prefix`: what stands before a name where the user wrote it."""
    section, _, key = name.partition(".")
    section_type = Config.__annotations__.get(section)
    if section_type is not None and key in section_type.__annotations__:
        declared: Setting = section_type.__dict__[key]
        return declared
    from trainer import suggestions

    close = suggestions.setting(section, key)
    hint = f"Did you mean {prefix}{close}?" if close else "`trainer check` lists every setting."
    raise UserError(f"unknown setting {shown}", hint, 2)


def _type_of(section: str, key: str) -> Any:
    return Config.__annotations__[section].__annotations__[key]


def _apply_variable(config: Config, origins: dict[str, str], name: str, value: str) -> None:
    """Take over `TRAINER_OPTIM_LR` as `optim.lr`. UserError for a variable that nothing of the trainer reads."""
    section, _, key = name.removeprefix("TRAINER_").lower().partition("_")
    if section in Config.__annotations__ and key in Config.__annotations__[section].__annotations__:
        if not _names_code(f"{section}.{key}") or startup.counts(name):
            _set_text(config, origins, f"{section}.{key}", value, name)
        return
    others = startup.known_variables()
    if name in others:
        return
    from trainer import suggestions

    close = suggestions.variable(name, others)
    fix = f"Did you mean {close}? Otherwise unset {name}." if close else f"Unset {name}: no setting has that name."
    raise UserError(f"unknown environment variable {name}", fix, 2)


def _names_code(name: str) -> bool:
    """Whether the value of that setting is code to run."""
    section, _, key = name.partition(".")
    declared = Config.__annotations__[section].__dict__.get(key)
    return isinstance(declared, Setting) and declared.code


def _set_text(config: Config, origins: dict[str, str], name: str, text: str, shown: str) -> None:
    section, _, key = name.partition(".")
    key, _, inner = key.partition(".")
    if inner and section in Config.__annotations__ and _table_key(section, key):
        getattr(getattr(config, section), key)[inner] = literal(text)
        origins[f"{section}.{key}"] = shown
        return
    declared = _declaration(name, shown, "--")
    value = from_text(text, _type_of(section, key), shown)
    check(declared, value, shown)
    setattr(getattr(config, section), key, value)
    origins[f"{section}.{key}"] = shown


def _table_key(section: str, key: str) -> bool:
    types = Config.__annotations__[section].__annotations__
    return key in types and types[key] == dict[str, object]


def _check_together(config: Config) -> Iterator[UserError]:
    """Yield what one key alone cannot show and needs no device."""
    sources = [f"data.{name}" for name in ("text", "jsonl", "images", "dataset") if getattr(config.data, name)]
    if len(sources) > 1:
        yield UserError(f"{' and '.join(sources)} are set at once", f"Set only one of {', '.join(sources)}.", 2)
    if config.data.holdout == 1 and not config.data.validation and not config.data.dataset:
        yield UserError(
            "data.holdout = 1 makes every document validation and leaves none for training",
            "Set data.holdout to 2 or more, or to 0 for no validation.",
            2,
        )
    if config.batch.size and config.batch.tokens:
        yield UserError("batch.size and batch.tokens are both set", "Set only one of them.", 2)
    if config.batch.tokens % config.data.sequence:
        more = -(-config.batch.tokens // config.data.sequence) * config.data.sequence
        yield UserError(
            f"batch.tokens = {config.batch.tokens} is not a multiple of data.sequence = {config.data.sequence}",
            f"Set batch.tokens to {more}, for example.",
            2,
        )
    if config.run.device not in ("auto", "cpu", "cuda"):
        yield UserError(f"run.device cannot be {config.run.device!r}", "Set run.device to auto, cpu or cuda.", 2)
    if config.precision.weights == "bf16" and config.precision.compute not in ("bf16", "auto"):
        yield UserError(
            f"precision.weights = bf16 does not go with precision.compute = {config.precision.compute}",
            "Set precision.compute to bf16, or precision.weights to fp32.",
            2,
        )


def global_batch(config: Config) -> int:
    """Samples per update over all ranks."""
    if config.batch.tokens:
        return config.batch.tokens // config.data.sequence
    return config.batch.size or 32


def require_data(config: Config) -> None:
    """Training needs data and says so before anything is imported."""
    data = config.data
    if not (data.text or data.jsonl or data.images or data.dataset):
        raise UserError(
            "no training data is given",
            'Set data.text, data.jsonl, data.images or data.dataset, e.g. --data.text "*.txt".',
            2,
        )


def differences(before: Section, now: Section) -> list[str]:
    """`optim.lr 0.001 -> 0.002` for every value that differs between two configurations."""
    found = []
    for section, key, _ in keys():
        old, new = getattr(getattr(before, section), key), getattr(getattr(now, section), key)
        if old != new:
            found.append(f"{section}.{key} {old!r} -> {new!r}")
    return found
