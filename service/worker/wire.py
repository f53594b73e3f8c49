"""The words between front and worker: msgpack frames (``framing``), decoded by type.

Laws
- Anything that is no frame of the other side is a :class:`WireError`, which means "worker lost".
- Nothing is ever unpickled: a worker that may run foreign model code executes nothing in the front.
- Prepared items are a cache, never state: RUN carries the inputs again.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from service.worker.framing import WireError, framed

FaultKind = Literal["oom", "input", "error", "device_lost"]

_TAG = "op"


class WireItem(msgspec.Struct, frozen=True, array_like=True):
    """One input with its parameters.

    Attributes:
        id: unique for the life of the front.
        inputs: the text, empty for media tasks.
        parameters: checked and normalised, as JSON bytes (an object).
        rehearse: the fault to act out (``X-Rehearse-Fault``), empty for none.
        media: the bytes of a media task.
    """

    id: int
    inputs: str
    parameters: bytes = b"{}"
    rehearse: str = ""
    media: bytes = b""


class Trace(msgspec.Struct, frozen=True):
    """Where an exception came from: its class and frames (``file:line function``), no message."""

    error: str
    frames: list[str]


class Load(msgspec.Struct, frozen=True, tag_field=_TAG, tag="load"):
    """Load the model and warm it up; answered by READY or FAILED.

    ``cores``: of all workers, to find out how they are best shared out; 0: threads are given.
    ``reload``: the model could be loaded before: a failed self-test is told in READY.
    ``batch_tokens_hint``: largest padded size worth warming up, 0 for the worker's choice.
    """

    model: str
    task: str
    revision: str = ""
    device: str = "auto"
    dtype: str = "auto"
    torch_threads: int = 1
    cores: int = 0
    reload: bool = False
    trust_remote_code: bool = False
    rehearsal: bool = False
    batch_tokens_hint: int = 0


class Prepare(msgspec.Struct, frozen=True, tag_field=_TAG, tag="prepare"):
    """Tokenise one item now; answered by PREPARED or UNFIT."""

    item: WireItem


class Run(msgspec.Struct, frozen=True, tag_field=_TAG, tag="run"):
    """Run a batch; answered by RESULT or FAULT."""

    batch: int
    items: list[WireItem]


class Probe(msgspec.Struct, frozen=True, tag_field=_TAG, tag="probe"):
    """Run the canary; answered by PROBED."""

    probe: int


class Drop(msgspec.Struct, frozen=True, tag_field=_TAG, tag="drop"):
    """Forget prepared items that will not be run."""

    ids: list[int]


ToWorker = Load | Prepare | Run | Probe | Drop


class Facts(msgspec.Struct, frozen=True):
    """What a ready worker knows of its model.

    Attributes:
        task, model, device, dtype: as loaded (``model`` is the setting's last path part).
        mask_token: the literal mask, empty where the task has none.
        max_tokens: most tokens of one input, proved by one run at that length.
        vocab_size: size of the output vocabulary, 0 where there is none.
        batchable: whether several items may run at once (needs a pad token).
        cost_fixed_s, cost_unit_s: the warm-up fit ``a + b·P``, P in padded units.
        typical_units: units of the task's typical input.
        units_per_char, prepare_s_per_char: for estimates before tokenising.
        load_s: seconds from LOAD to READY.
        torch_threads, workers: intra-op threads (0 without torch), and how many workers suit them.
        path: how answers are made: ``stock``, or the name of a faster way that was proved equal.
        step_units: units of one generated token, 0 where none are generated.
        most_units: most padded units whose answers fit one frame, 0 where they always do.
        width: numbers of a text's one vector, pooled as the model says, 0 where it has none.
        rate_hz: samples of a second that a model of sounds hears, 0 for others.
    """

    task: str
    model: str
    device: str
    dtype: str
    mask_token: str
    max_tokens: int
    vocab_size: int
    batchable: bool
    cost_fixed_s: float
    cost_unit_s: float
    typical_units: int
    units_per_char: float
    prepare_s_per_char: float
    load_s: float
    torch_threads: int
    workers: int = 1
    path: str = "stock"
    step_units: float = 0.0
    most_units: int = 0
    width: int = 0
    rate_hz: int = 0


class Ready(msgspec.Struct, frozen=True, tag_field=_TAG, tag="ready"):
    """Loaded and warmed up; the canary was good, or this is a reload."""

    facts: Facts
    canary_ok: bool = True


class Failed(msgspec.Struct, frozen=True, tag_field=_TAG, tag="failed"):
    """The model cannot be loaded.

    Attributes:
        reason: ``model_not_found``, ``hub_unreachable``, ``model_broken``, ``pickle_only``,
            ``wrong_task``, ``remote_code``, ``no_device``, ``out_of_memory``, ``canary_failed``
            or ``error``.
        message: one sentence by us: what is wrong and what to do; no exception text.
    """

    reason: str
    message: str
    trace: Trace | None = None


class Prepared(msgspec.Struct, frozen=True, tag_field=_TAG, tag="prepared"):
    """The item is tokenised: ``units`` is its size before padding, ``key`` its batch key."""

    id: int
    units: int
    key: str
    seconds: float = 0.0


class Unfit(msgspec.Struct, frozen=True, tag_field=_TAG, tag="unfit"):
    """The item cannot be run.

    ``code`` is ``invalid_input`` (``message`` says what to send, ``limit`` the token limit if that
    is it, ``pointer`` the JSON pointer of the parameter at fault, empty for the input itself) or
    ``model_error`` (preparing raised; ``trace`` says where).
    """

    id: int
    code: str
    message: str = ""
    limit: int = 0
    trace: Trace | None = None
    pointer: str = ""


class Result(msgspec.Struct, frozen=True, tag_field=_TAG, tag="result"):
    """A batch's answers, in its order, each as JSON bytes.

    An empty one is the item's own ``model_error`` (NaN scores, for example). ``seconds`` is the
    time of the whole RUN, ``units`` the real and ``padded`` the padded size.
    """

    batch: int
    outputs: list[bytes]
    seconds: float
    units: int
    padded: int


class Fault(msgspec.Struct, frozen=True, tag_field=_TAG, tag="fault"):
    """A batch failed as a whole; sent after references are dropped and the cache is emptied.

    ``kind`` is ``oom``, ``input`` (item ``index`` is at fault; ``message``, ``limit`` and
    ``pointer`` as in UNFIT), ``error`` (``message`` is ours, for the log) or ``device_lost``;
    ``seconds`` is how long the batch ran before it failed.
    """

    batch: int
    kind: FaultKind
    seconds: float
    index: int = -1
    message: str = ""
    limit: int = 0
    trace: Trace | None = None
    pointer: str = ""


class Probed(msgspec.Struct, frozen=True, tag_field=_TAG, tag="probed"):
    """The canary's verdict."""

    probe: int
    ok: bool
    device_lost: bool = False
    trace: Trace | None = None


class Sample(msgspec.Struct, frozen=True, tag_field=_TAG, tag="sample"):
    """The worker's own use of the machine, once a second; device bytes are 0 without a device."""

    rss_bytes: int
    cpu_s: float
    device_allocated_bytes: int = 0
    device_reserved_bytes: int = 0
    device_total_bytes: int = 0


FromWorker = Ready | Failed | Prepared | Unfit | Result | Fault | Probed | Sample


_encoder = msgspec.msgpack.Encoder()
_to_worker: msgspec.msgpack.Decoder[ToWorker] = msgspec.msgpack.Decoder(ToWorker)
_from_worker: msgspec.msgpack.Decoder[FromWorker] = msgspec.msgpack.Decoder(FromWorker)


def encode(frame: ToWorker | FromWorker) -> bytes:
    """One frame with its length in front.

    Raises:
        WireError: the frame is over :data:`MAX_FRAME`.
    """
    return framed(_encoder.encode(frame))


def decode_to_worker(body: bytes) -> ToWorker:
    """Decode a frame that the front sent.

    Raises:
        WireError: not one of the front's frames.
    """
    try:
        return _to_worker.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise WireError("not a frame of the front") from None


def decode_from_worker(body: bytes) -> FromWorker:
    """Decode a frame that a worker sent.

    Raises:
        WireError: not one of a worker's frames.
    """
    try:
        return _from_worker.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise WireError("not a frame of a worker") from None
