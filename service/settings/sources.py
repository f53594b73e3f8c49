"""Where settings come from: flag over environment over file over default.

pydantic-settings makes the flags from the model; what it lacks is here: it passes unknown
variables by, prints values in its errors, and names a field instead of what somebody wrote.

Laws
- Every error is one line: the setting as given (``--queue-limit``, ``SEAWALL_QUEUE_LIMIT``,
  ``queue_limit in FILE``), then what it must be. A value is never repeated: it may be a secret in
  the wrong place.
- All faults are found at once, not one a start.
- A name that nobody knows is an error, except the variables that a container platform injects for
  a Service of this name; no setting's name can be one of those.
- Nothing but the arguments (and the file that they name) is read.
"""

from __future__ import annotations

import argparse
import difflib
import re
import textwrap
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_settings import CliSettingsSource

from service import ENV_PREFIX, NAME
from service.settings.keyfile import digests_in
from service.settings.model import Settings
from service.settings.values import Rule

INJECTED = re.compile(
    rf"{ENV_PREFIX}(.+_)?(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?"
    r"|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)
"""What Kubernetes and Docker set for a Service or a link called like this program."""

CONFIG = "config"
_SEE_ALL = f"'{NAME} serve --help' lists all of them"


class SettingsError(Exception):
    """The settings cannot be used; ``lines`` says why, one fault a line."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.lines = list(lines)
        super().__init__("\n".join(self.lines))


@dataclass(frozen=True, slots=True)
class Loaded:
    """Settings, and the flag, variable or file key that each came from; none for a default."""

    settings: Settings
    origins: dict[str, str]


@dataclass(slots=True)
class _Found:
    """What the sources hold: values, the name each was given under, and faults."""

    values: dict[str, Any] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def take(self, setting: str, value: object, name: str, *, text: bool) -> None:
        """Keep a value unless a stronger source gave one; a text is read by the setting's rule."""
        if setting in self.names:
            return
        self.names[setting] = name
        try:
            rule = rule_of(setting)
            self.values[setting] = rule.from_text(str(value)) if text else rule.check(value)
        except ValueError as fault:
            self.faults.append(f"{name} must be {fault}")


def load_settings(argv: Sequence[str], environ: Mapping[str, str]) -> Settings:
    """Read the settings from flags, environment and file.

    Args:
        argv: flags only, without the program and the command.
        environ: the environment's variables.

    Raises:
        SettingsError: with one line for each fault.
    """
    return load(argv, environ).settings


def load(argv: Sequence[str], environ: Mapping[str, str]) -> Loaded:
    """As :func:`load_settings`, with the origins."""
    found = _Found()
    from_flag = _read_flags(argv, found)
    from_variable = _read_environment(environ, found)
    if file := from_flag or from_variable:
        _read_file(file, found, FLAG_CONFIG if from_flag else VARIABLE_CONFIG)
    if found.faults:
        raise SettingsError(found.faults)
    try:
        settings = Settings(**found.values)
    except ValidationError as error:
        # each value alone was checked above: what is left is what does not fit together
        raise SettingsError(
            f"{found.names.get(one.setting, one.setting)} {one.message}"
            for fault in error.errors(include_input=False, include_url=False)
            for one in fault["ctx"]["conflicts"]
        ) from None
    if settings.api_keys_file and not _holds_a_key(Path(settings.api_keys_file)):
        name = found.names["api_keys_file"]
        raise SettingsError(
            [f"{name} must be a readable file with one API key a line, or its sha256:HEX"]
        )
    if settings.synthetic:
        found.names.setdefault("task", "implied by model")
    return Loaded(settings, found.names)


def flag(setting: str) -> str:
    """The flag of a setting."""
    return "--" + setting.replace("_", "-")


def variable(setting: str) -> str:
    """The environment variable of a setting."""
    return ENV_PREFIX + setting.upper()


def rule_of(setting: str) -> Rule:
    """What a setting's value must be."""
    rules = (one for one in Settings.model_fields[setting].metadata if isinstance(one, Rule))
    return next(rules)


CONFIG = "config"
FLAG_CONFIG, VARIABLE_CONFIG = flag(CONFIG), variable(CONFIG)


class _Parser(argparse.ArgumentParser):
    """Raises instead of exiting, with our words instead of argparse's, which repeat values."""

    config = ""

    def read(self, args: Sequence[str]) -> argparse.Namespace:
        """Parse, or raise :class:`SettingsError`."""
        try:
            namespace, rest = self.parse_known_args(args)
        except argparse.ArgumentError as fault:
            raise SettingsError([_bad_flag(fault.argument_name or "")]) from None
        if rest:
            flags = [word.partition("=")[0] for word in rest if word.startswith("-")]
            known = [flag(name) for name in (*Settings.model_fields, CONFIG)]
            raise SettingsError(
                [_unknown(word, known) for word in flags]
                or ["a word without a flag: write every setting as --name VALUE"]
            )
        self.config = namespace.config or ""
        return namespace


def _bad_flag(names: str) -> str:
    name = names.partition("/")[0]  # argparse says --rehearsal/--no-rehearsal
    if name == FLAG_CONFIG:
        return f"{FLAG_CONFIG} must be followed by the path of a TOML file"
    setting = name.removeprefix("--").replace("-", "_")
    if Settings.model_fields[setting].annotation is bool:
        no = flag("no_" + setting)
        return f"{name} is a switch without a value: write {name} or {no}"
    return f"{name} must be followed by {rule_of(setting).says()}"


def _read_flags(argv: Sequence[str], found: _Found) -> str:
    if not argv:
        return ""
    parser = _Parser(allow_abbrev=False, add_help=False, exit_on_error=False)
    parser.add_argument(FLAG_CONFIG)
    try:
        source = CliSettingsSource[Any](
            Settings,
            root_parser=parser,
            parse_args_method=_Parser.read,
            cli_parse_args=list(argv),
            cli_kebab_case=True,
            cli_implicit_flags=True,
            cli_avoid_json=True,
        )
        given = source()
    except SettingsError as error:
        found.faults += error.lines
        return ""
    for setting, value in given.items():
        found.take(setting, value, flag(setting), text=not isinstance(value, bool))
    return parser.config


def _read_environment(environ: Mapping[str, str], found: _Found) -> str:
    known = {variable(setting): setting for setting in Settings.model_fields}
    for name in sorted(environ):
        if not name.startswith(ENV_PREFIX) or INJECTED.fullmatch(name) or name == VARIABLE_CONFIG:
            continue
        if name not in known:
            found.faults.append(_unknown(name, [*known, VARIABLE_CONFIG]))
        elif environ[name]:  # empty means the default
            found.take(known[name], environ[name], name, text=True)
    return environ.get(VARIABLE_CONFIG, "")


def _read_file(path: str, found: _Found, name: str) -> None:
    try:
        with Path(path).open("rb") as file:
            table = tomllib.load(file)
    except (OSError, ValueError, RecursionError) as error:
        # a position is safe to repeat, the rest of a parser's message may quote the file
        place = re.search(r"\(at (line \d+, column \d+)\)", str(error))
        where = f", not so at {place[1]}" if place else ""
        found.faults.append(f"{name} must name a TOML file of lines 'setting = value'{where}")
        return
    file_name = Path(path).name
    for key, value in table.items():
        if key in Settings.model_fields:
            found.take(key, value, f"{key} in {file_name}", text=False)
        else:
            found.faults.append(_unknown(key, list(Settings.model_fields), f" in {file_name}"))


def _holds_a_key(path: Path) -> bool:
    try:
        return path.is_file() and bool(digests_in(path.read_bytes()))
    except (OSError, ValueError):
        return False


def _unknown(name: str, known: Sequence[str], where: str = "") -> str:
    plain = {_plain(one): one for one in known}
    near = difflib.get_close_matches(_plain(name), plain, n=1)
    hint = f"did you mean {plain[near[0]]}?" if near else _SEE_ALL
    # a name may hold anything, a line break too; 80 characters show any name of ours
    shown = name if name.isprintable() else ascii(name)
    return f"{shown[:80]}{where} is not a setting: {hint}"


def _plain(name: str) -> str:
    # what every name of its kind begins with makes no two of them alike
    return name.upper().replace("-", "_").removeprefix(ENV_PREFIX).lstrip("_")


def value_text(value: object) -> str:
    """A setting's value as somebody would write it."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def help_text(command: str) -> str:
    """What ``seawall serve --help`` prints: every setting with meaning, values and default."""
    lines = [
        f"usage: {NAME} {command} [{FLAG_CONFIG} FILE] [--SETTING VALUE]...",
        "",
        "Every setting may be a flag, a variable or a line 'setting = value' of a TOML file;",
        "a flag wins over a variable, a variable over the file. An empty variable is the default.",
        "",
        f"  {FLAG_CONFIG} FILE  ({VARIABLE_CONFIG})",
        "      the TOML file; default: none",
    ]
    for setting, info in Settings.model_fields.items():
        is_switch = info.annotation is bool
        shown = value_text(info.default)
        words = f"{info.description}. Must be {rule_of(setting).says()}; default: {shown or 'none'}"
        words = words[0].upper() + words[1:]
        head = (
            f"{flag(setting)} | {flag('no_' + setting)}" if is_switch else f"{flag(setting)} VALUE"
        )
        lines += ["", f"  {head}  ({variable(setting)})"]
        lines += textwrap.wrap(
            words, 92, initial_indent=" " * 6, subsequent_indent=" " * 6, break_on_hyphens=False
        )
    return "\n".join(lines) + "\n"
