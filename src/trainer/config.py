"""Run file + environment + flags -> one checked `Config`, and where each value came from. No torch.

Later wins: defaults, the run file, `TRAINER_<SECTION>_<KEY>` variables, `--section.key value` flags. Every mistake is a
UserError with status 2 that names the key as the user wrote it and the nearest one that exists.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from trainer import startup
from trainer.errors import UserError
from trainer.schema import Config
from trainer.settings import Section, Setting

TRUE = ("true", "yes", "on", "1")
FALSE = ("false", "no", "off", "0")


class Resolved:
    """A configuration and the origin of each value: `origins["optim.lr"]` is "default", "run.toml", "--optim.lr"..."""

    def __init__(self, config: Config, origins: dict[str, str]) -> None:
        self.config = config
        self.origins = origins


def resolve(
    run_file: str | None, flags: Sequence[tuple[str, str]], environ: Mapping[str, str], text: str | None = None
) -> Resolved:
    """Reads and checks everything. `text` replaces the file's content (the embedded default run)."""
    config, origins = Config(), {}
    for section, key, _ in keys():
        origins[f"{section}.{key}"] = "default"
    if run_file is not None:
        _apply_file(config, origins, run_file, text if text is not None else _read(run_file))
    for name, value in sorted(environ.items()):
        found = _environment_key(name)
        if found and not (_names_code(found) and not startup.counts(name)):
            _set_text(config, origins, found, value, name)
    for name, value in flags:
        _set_text(config, origins, name, value, f"--{name}")
    _check_together(config)
    return Resolved(config, origins)


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
    raise UserError(f"a {type(value).__name__} cannot stand in a run file", "use text, numbers, lists or tables", 2)


def nearest(name: str, names: Sequence[str]) -> str:
    """` (did you mean 'x'?)`, or nothing."""
    import difflib

    close = difflib.get_close_matches(name, names, 1, 0.6)
    return f"did you mean {close[0]!r}?" if close else ""


def _read(path: str) -> str:
    try:
        with open(path, "rb") as file:
            raw = file.read()
    except OSError as error:
        raise UserError(f"cannot read the run file {path}: {error.strerror}", "`trainer init` writes one", 2) from None
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text (byte {error.start})", "save it as UTF-8", 2) from None


def _apply_file(config: Config, origins: dict[str, str], path: str, text: str) -> None:
    import tomllib

    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path} is not valid TOML: {error}", "mend that line", 2) from None
    for section, values in table.items():
        if section not in Config.__annotations__:
            all_keys = [f"{s}.{k}" for s, k, _ in keys() if k == section]
            hint = nearest(section, list(Config.__annotations__))
            if all_keys:
                hint = f"it belongs under [{all_keys[0].split('.')[0]}]"
            raise UserError(f"{path}: unknown section [{section}]", hint or _sections_hint(), 2)
        if not isinstance(values, dict):
            raise UserError(f"{path}: {section} must be a section", f"write [{section}] on a line of its own", 2)
        for key, value in values.items():
            declared = _declaration(f"{section}.{key}", f"{path}: [{section}] {key}")
            converted = _typed(value, _type_of(section, key), f"{path}: {section}.{key}")
            _check(declared, converted, f"{path}: {section}.{key}")
            setattr(getattr(config, section), key, converted)
            origins[f"{section}.{key}"] = path


def _sections_hint() -> str:
    return "the sections are " + ", ".join(f"[{s}]" for s in Config.__annotations__)


def _declaration(name: str, shown: str) -> Setting:
    section, _, key = name.partition(".")
    section_type = Config.__annotations__.get(section)
    if section_type is not None and key in section_type.__annotations__:
        declared: Setting = section_type.__dict__[key]
        return declared
    same_section = [f"{s}.{k}" for s, k, _ in keys() if s == section]
    hint = nearest(key, [n.partition(".")[2] for n in same_section]) if same_section else ""
    hint = hint or _by_help(section, key) or nearest(name, [f"{s}.{k}" for s, k, _ in keys()])
    raise UserError(f"unknown setting {shown}", hint or "`trainer check` prints every setting", 2)


def _by_help(section: str, key: str) -> str:
    """`learning_rate` is told of `optim.lr`, whose help says "peak learning rate"; the own section comes first."""
    words = key.replace("_", " ").lower()
    if len(words) < 4:
        return ""
    found = [
        (s != section, len(declared.help), f"{s}.{k}", declared.help)
        for s, k, declared in keys()
        if words in declared.help.lower()
    ]
    return f"did you mean {min(found)[2]!r} ({min(found)[3]})?" if found else ""


def _type_of(section: str, key: str) -> Any:
    return Config.__annotations__[section].__annotations__[key]


def _environment_key(name: str) -> str:
    """`TRAINER_OPTIM_LR` -> `optim.lr`; "" for variables that are not settings."""
    if not name.startswith("TRAINER_"):
        return ""
    section, _, key = name[len("TRAINER_") :].lower().partition("_")
    return f"{section}.{key}" if section in Config.__annotations__ and key else ""


def _names_code(name: str) -> bool:
    """Whether the value of that setting is code to run."""
    section, _, key = name.partition(".")
    declared = Config.__annotations__[section].__dict__.get(key)
    return isinstance(declared, Setting) and declared.code


def _set_text(config: Config, origins: dict[str, str], name: str, text: str, shown: str) -> None:
    section, _, key = name.partition(".")
    key, _, inner = key.partition(".")
    if inner and section in Config.__annotations__ and _table_key(section, key):
        getattr(getattr(config, section), key)[inner] = _literal(text)
        origins[f"{section}.{key}"] = shown
        return
    declared = _declaration(name, shown)
    value = _from_text(text, _type_of(section, key), shown)
    _check(declared, value, shown)
    setattr(getattr(config, section), key, value)
    origins[f"{section}.{key}"] = shown


def _table_key(section: str, key: str) -> bool:
    types = Config.__annotations__[section].__annotations__
    return key in types and types[key] == dict[str, object]


def _literal(text: str) -> object:
    """A TOML value where `text` is one, else the text itself: `--model.options.depth 3` is a number."""
    import tomllib

    try:
        value: object = tomllib.loads(f"v = {text}")["v"]
    except tomllib.TOMLDecodeError:
        return text
    return value


def _from_text(text: str, kind: Any, shown: str) -> object:
    if kind is str:
        return text
    if kind is bool:
        if text.lower() in TRUE or text.lower() in FALSE:
            return text.lower() in TRUE
        raise UserError(f"{shown}: {text!r} is neither true nor false", f"write {shown} true or {shown} false", 2)
    if kind is int or kind is float:
        try:
            return kind(text)
        except ValueError:
            wanted = "a whole number" if kind is int else "a number"
            raise UserError(f"{shown}: {text!r} is not {wanted}", f"Write {shown} {_as_digits(text)}.", 2) from None
    if kind == dict[str, object] or text.startswith("["):
        return _typed(_literal(text), kind, shown)
    parts = [part for part in text.split(",") if part]
    inner = _member(kind)
    return parts if inner is str else [_from_text(part, inner, shown) for part in parts]


def _as_digits(text: str) -> str:
    """`1e9` as the whole number that it stands for; an example where it stands for none."""
    try:
        value = float(text)
    except ValueError:
        return "8"
    return str(int(value)) if math.isfinite(value) and value == int(value) else "8"


def _member(kind: Any) -> Any:
    """What a list is of."""
    return {list[int]: int, list[float]: float}.get(kind, str)


def _typed(value: object, kind: Any, shown: str) -> object:
    """A TOML value as the declared type; a bool is no number and 8.0 is no whole number."""
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if kind in (bool, int, float, str):
        if isinstance(value, kind) and not (kind is int and isinstance(value, bool)):
            return value
    elif kind == dict[str, object]:
        if isinstance(value, dict):
            return value
    elif isinstance(value, list):
        return [_typed(item, _member(kind), shown) for item in value]
    elif isinstance(value, str) and kind == list[str]:
        return [value]
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
    wanted = names.get(kind, "a table" if kind == dict[str, object] else "a list")
    article = {bool: "a truth value", int: "a whole number", float: "a number", str: "a text", list: "a list"}
    given = article.get(type(value), f"a {type(value).__name__}")
    raise UserError(f"{shown} must be {wanted}, not {given}: {value!r}", f"write {wanted}", 2)


def _check(declared: Setting, value: object, shown: str) -> None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        if not math.isfinite(value):
            raise UserError(f"{shown} must be a finite number, not {value}", "give a finite number", 2)
        if declared.minimum is not None and value < declared.minimum:
            least = f"{declared.minimum:g}"
            raise UserError(f"{shown} must be at least {least}, not {value}", f"give a number from {least} up", 2)
        if declared.above is not None and value <= declared.above:
            least = f"{declared.above:g}"
            raise UserError(f"{shown} must be above {least}, not {value}", f"give a number above {least}", 2)
        if declared.maximum is not None and value > declared.maximum:
            raise UserError(
                f"{shown} must be at most {declared.maximum}, not {value}",
                f"Give a number up to {declared.maximum}.",
                2,
            )
    for text in value if isinstance(value, list) else [value]:
        if isinstance(text, str) and "\0" in text:
            raise UserError(f"{shown} contains a NUL character: {text!r}", "Remove the NUL character.", 2)
    if declared.choices and value not in declared.choices:
        hint = nearest(str(value), declared.choices)
        choices = ", ".join(declared.choices)
        raise UserError(f"{shown} cannot be {value!r}", f"{hint} one of: {choices}".strip(), 2)


def _check_together(config: Config) -> None:
    """What one key alone cannot show and needs no device."""
    sources = [name for name in ("text", "jsonl", "images", "dataset") if getattr(config.data, name)]
    if len(sources) > 1:
        raise UserError(f"data.{sources[0]} and data.{sources[1]} are both given", "keep one of them", 2)
    if config.data.holdout == 1 and not config.data.validation and not config.data.dataset:
        raise UserError(
            "data.holdout 1 makes every document validation and leaves none to train on",
            "--data.holdout 2 or more, or 0 for no validation",
            2,
        )
    if config.batch.size and config.batch.tokens:
        raise UserError("batch.size and batch.tokens are both given", "keep one of them", 2)
    if config.batch.tokens % config.data.sequence:
        raise UserError(
            f"batch.tokens {config.batch.tokens} is not a multiple of data.sequence {config.data.sequence}",
            f"for example --batch.tokens {-(-config.batch.tokens // config.data.sequence) * config.data.sequence}",
            2,
        )
    if config.run.device not in ("auto", "cpu", "cuda"):
        raise UserError(f"run.device: no such device {config.run.device!r}", "one of: auto, cpu, cuda", 2)
    if config.precision.weights == "bf16" and config.precision.compute not in ("bf16", "auto"):
        raise UserError("precision.weights bf16 goes with precision.compute bf16 only", "change one of them", 2)


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
            "no training data is named",
            'give data.text, data.jsonl, data.images or data.dataset, e.g. --data.text "*.txt"',
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
