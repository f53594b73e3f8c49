"""The table of settings: name, default, bounds and meaning, each in this one place.

Laws
- Units stand in the name. ``auto`` stays the literal word until the limits are derived from what
  the warm-up measured (``core/limits``).
- A description gives the meaning and, where it is not plain, the reason for the bounds; ``--help``
  shows it.
- Constructing :class:`Settings` reads nothing but its arguments: flags, environment and file are
  read by ``sources`` only.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from service.core.limits import LimitSettings
from service.settings.address import Address
from service.settings.tasks import SYNTHETIC, TaskName, implied
from service.settings.together import conflicts
from service.settings.values import (
    AUTO,
    DEVICE,
    FILE,
    MODEL,
    REVISION,
    Bind,
    Bound,
    Choice,
    IntOrAuto,
    Switch,
    Whole,
    number,
)

PACKAGED_MODEL = "fill-mask-small"
"""The model inside the package, by its short name."""

MODELS_FOLDER = Path(__file__).parent.parent / "models"

_KIB, _MIB, _GIB = 2**10, 2**20, 2**30
_HOUR_MS, _DAY_S = 3_600_000, 86_400


class Settings(BaseSettings):
    """Every setting of the server, checked alone and together; immutable.

    Raises:
        pydantic.ValidationError: a value does not fit, or two do not fit together.
    """

    model_config = SettingsConfigDict(
        extra="forbid", frozen=True, hide_input_in_errors=True, validate_default=True
    )

    bind: Annotated[str, Bind()] = Field(
        default="127.0.0.1:8000",
        description="where to listen; port 0 picks one and prints it, a unix: socket has mode 0660",
    )
    metrics_bind: Annotated[str, Bind(optional=True)] = Field(
        default="", description="if set, /metrics and /status move to this address"
    )
    model: Annotated[str, MODEL] = Field(
        default=PACKAGED_MODEL,
        description="what to serve; fill-mask-small is inside the package. The network is used"
        " only for a hub id that is not cached",
    )
    revision: Annotated[str, REVISION] = Field(
        default="", description="branch, tag or commit of a hub model; empty is its main branch"
    )
    task: Annotated[str, TaskName()] = Field(
        default="fill-mask", description="the pipeline's task; a synthetic: model implies synthetic"
    )
    device: Annotated[str, DEVICE] = Field(
        default="auto",
        description="where the model runs; auto takes an accelerator if there is one",
    )
    dtype: Annotated[str, Choice(("auto", "float32", "float16", "bfloat16"))] = Field(
        default="auto", description="number format of the weights; auto suits the device"
    )
    workers: Annotated[IntOrAuto, Whole(1, 64, auto=True)] = Field(
        default=AUTO,
        description="model processes, each with a whole copy of the model; auto is measured at the"
        " start, within the memory that is free",
    )
    torch_threads: Annotated[IntOrAuto, Whole(1, 1024, auto=True)] = Field(
        default=AUTO,
        description="threads of one worker; auto is measured with the workers, or their share of"
        " the CPU quota",
    )
    trust_remote_code: Annotated[bool, Switch()] = Field(
        default=False, description="let a worker run code that comes with the model"
    )
    queue_limit: Annotated[int, Whole(1, 100_000)] = Field(
        default=256,
        description="items that may wait, then 503 queue_full; beyond 100000 nobody is served in"
        " time",
    )
    queue_bytes: Annotated[int, Whole(_KIB, 64 * _GIB)] = Field(
        default=256 * _MIB, description="bytes of input that may wait, then 503 queue_full"
    )
    deadline_ms: Annotated[IntOrAuto, Whole(1, _HOUR_MS, auto=True)] = Field(
        default=AUTO,
        description="default deadline of a request; auto is 30 times one typical input, rounded"
        " up to a step from 1 to 60 s",
    )
    max_deadline_ms: Annotated[int, Whole(1, _HOUR_MS)] = Field(
        default=60_000,
        description="most that a client may ask for; a connection held over an hour is a leak",
    )
    max_wait_ms: Annotated[IntOrAuto, Whole(1, _HOUR_MS, auto=True)] = Field(
        default=AUTO,
        description="predicted wait over which 503 overloaded; auto is half the deadline",
    )
    batch_ms: Annotated[IntOrAuto, Whole(1, _HOUR_MS, auto=True)] = Field(
        default=AUTO, description="most time one batch may take; auto is an eighth of the deadline"
    )
    slo_latency_ms: Annotated[float, Bound()] = Field(
        default=1000.0,
        description="a good answer comes within this time; only bounds of the histogram can be"
        " measured",
    )
    max_body_bytes: Annotated[int, Whole(1, 32 * _MIB)] = Field(
        default=_MIB,
        description="longest body, for tasks of images, sound and video 16 MiB unless set; 32 MiB"
        " is half of the largest frame between front and worker",
    )
    max_items: Annotated[int, Whole(1, 4096)] = Field(
        default=64,
        description="longest list of inputs in one request; longer ones block the others",
    )
    max_chars: Annotated[IntOrAuto, Whole(1, 32 * _MIB, auto=True)] = Field(
        default=AUTO,
        description="most characters of one request, all inputs together; auto is 32 for each"
        " token that the model takes, at most 100000. A body of 32 MiB has no more",
    )
    max_receiving_bytes: Annotated[int, Whole(1, 64 * _GIB)] = Field(
        default=64 * _MIB, description="bytes of bodies being received, over all connections"
    )
    max_connections: Annotated[IntOrAuto, Whole(1, 1_000_000, auto=True)] = Field(
        default=AUTO, description="open connections; auto is 80 % of the limit on open files"
    )
    max_connections_per_client: Annotated[IntOrAuto, Whole(1, 1_000_000, auto=True)] = Field(
        default=AUTO,
        description="open connections of one address (IPv6: of a /64); auto is half of all, and no"
        " bound for this machine itself",
    )
    behind_proxy: Annotated[bool, Switch()] = Field(
        default=False,
        description="an address is a proxy and no client: clients are told apart by key alone",
    )
    receive_timeout_ms: Annotated[int, Whole(1, 600_000)] = Field(
        default=10_000,
        description="time for the headers, and again for the body; over ten minutes slow clients"
        " could hold every connection",
    )
    keep_alive_s: Annotated[int, Whole(1, 3600)] = Field(
        default=75,
        description="how long an idle connection stays; longer than a proxy keeps its own",
    )
    breaker_failures: Annotated[int, Whole(1, 1000)] = Field(
        default=5, description="confirmed failures in a row that open the breaker"
    )
    breaker_probe_ms: Annotated[int, Whole(10, 600_000)] = Field(
        default=1000,
        description="time between two self-tests of an open breaker; each costs a model run",
    )
    watchdog_ms: Annotated[IntOrAuto, Whole(10, _HOUR_MS, auto=True)] = Field(
        default=AUTO,
        description="a batch that runs longer counts as hung; auto is 10 times its predicted time,"
        " at least 5 s",
    )
    load_timeout_s: Annotated[int, Whole(1, _DAY_S)] = Field(
        default=300, description="time for loading and warming up the model"
    )
    restart_limit: Annotated[int, Whole(1, 1000)] = Field(
        default=5,
        description="worker deaths without one good batch after which the server gives up",
    )
    restart_window_s: Annotated[int, Whole(1, _DAY_S)] = Field(
        default=300, description="time within which those deaths count"
    )
    drain_delay_ms: Annotated[int, Whole(0, 600_000)] = Field(
        default=0, description="at SIGTERM: time to serve on until every proxy has noticed"
    )
    drain_timeout_ms: Annotated[int, Whole(0, _HOUR_MS)] = Field(
        default=30_000, description="at SIGTERM, after the delay: time to finish what is inside"
    )
    api_keys_file: Annotated[str, FILE] = Field(
        default="",
        repr=False,
        description="file of API keys, one a line; protects predictions, /status and the page",
    )
    rehearsal: Annotated[bool, Switch()] = Field(
        default=False, description="act out faults on demand; only on a loopback address"
    )
    log_level: Annotated[str, Choice(("debug", "info", "warning", "error"))] = Field(
        default="info", description="least level that is logged"
    )
    log_format: Annotated[str, Choice(("auto", "json", "console"))] = Field(
        default="auto", description="auto is json unless on a terminal"
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - the library's signature
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only the arguments: the library's own sources pass unknown names by in silence."""
        return (init_settings,)

    @model_validator(mode="before")
    @classmethod
    def _imply(cls, data: dict[str, Any]) -> dict[str, Any]:
        return implied(data)

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if found := conflicts(self):
            text = "; ".join(f"{one.setting} {one.message}" for one in found)
            raise PydanticCustomError("together", "{text}", {"text": text, "conflicts": found})
        return self

    @property
    def address(self) -> Address:
        """Where to listen."""
        return Address.parse(self.bind)

    @property
    def metrics_address(self) -> Address | None:
        """Where ``/metrics`` and ``/status`` are, ``None``: with everything else."""
        return Address.parse(self.metrics_bind) if self.metrics_bind else None

    @property
    def synthetic(self) -> bool:
        """Whether no model is loaded at all."""
        return self.model.startswith(SYNTHETIC)

    @property
    def packaged_model(self) -> bool:
        """Whether the model is the one inside the package."""
        return self.model == PACKAGED_MODEL

    @property
    def model_is_folder(self) -> bool:
        """Whether the model is meant as a folder: packaged, there, or written like a path."""
        if self.synthetic:
            return False
        written = re.match(r"[./~]", self.model) or self.model.count("/") > 1
        return self.packaged_model or bool(written) or Path(self.model).is_dir()

    @property
    def model_path(self) -> str:
        """What a worker loads: an absolute folder, a hub id, or ``synthetic:…``."""
        if self.packaged_model:
            return str(MODELS_FOLDER / PACKAGED_MODEL)
        if self.model_is_folder:
            return str(Path(self.model).expanduser().absolute())
        return self.model

    @property
    def model_name(self) -> str:
        """The model's last path part: its name in metrics, pages and V2 addresses."""
        return self.model.rstrip("/").rpartition("/")[2] or self.model

    @property
    def limit_settings(self) -> LimitSettings:
        """What the limits are derived from, ``auto`` as ``None``."""
        return LimitSettings(
            deadline_ms=number(self.deadline_ms),
            max_deadline_ms=self.max_deadline_ms,
            max_wait_ms=number(self.max_wait_ms),
            batch_ms=number(self.batch_ms),
            watchdog_ms=number(self.watchdog_ms),
            max_chars=number(self.max_chars),
        )

    @property
    def receive_timeout_s(self) -> float:
        """Seconds for the headers, and again for the body."""
        return self.receive_timeout_ms / 1000

    def public(self) -> dict[str, Any]:
        """Every setting in force, fit for ``/status``: no secret, and no folder of this machine."""
        shown = self.model_dump()
        shown["api_keys_file"] = "set" if self.api_keys_file else ""
        if self.model_is_folder:
            shown["model"] = self.model_name
        return shown
