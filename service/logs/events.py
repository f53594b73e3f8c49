"""Every log event, once: its name and what it means.

A name is ``noun.verb`` and never changes; operators search for it.
"""

from __future__ import annotations

EVENTS: dict[str, str] = {
    "server.started": "The port is open.",
    "server.rehearsal": "Faults on demand are switched on; never in production.",
    "server.open": "Other machines can connect and no API keys are set: anybody who reaches the"
    " port is served.",
    "keys.read": "The key file changed and was read again; keys says how many it holds.",
    "keys.unusable": "The key file changed and cannot be used: the keys read before stay in force.",
    "server.draining": "A signal to stop arrived; what is inside finishes.",
    "server.stopped": "The process ends; exit_code says how.",
    "request.done": "A prediction request ended; outcome says how.",
    "http.done": "Anything but a prediction was answered (debug only).",
    "admission.shed": "Refusals by load that got no line of their own, as counts by code.",
    "worker.started": "A worker process was started.",
    "worker.ready": "A worker has loaded its model and passed its self-test.",
    "worker.failed": "A worker cannot load its model; reason says why.",
    "worker.start_failed": "A worker process could not be started; errno says why.",
    "worker.exited": "A worker process ended by itself; code is its exit code or minus the signal.",
    "worker.broken": "A worker broke the protocol and is killed.",
    "worker.lost": "A worker process ended or was killed; reason says why.",
    "worker.crash_loop": "Workers died again and again with no good batch between: exit 4.",
    "worker.restarting": "A lost worker is started again, after a back-off.",
    "worker.output": "A library printed something in a worker.",
    "canary.failed": "A worker's self-test failed.",
    "breaker.opened": "The model fails its self-test: predictions are refused.",
    "breaker.half_open": "The self-test passed: a few predictions are let in.",
    "breaker.closed": "The model works again.",
    "batch.split": "A batch failed and is run again in parts.",
    "batch.failed": "A batch failed; its members got their errors.",
    "model.error": "The model raised for one input: class and frames.",
    "internal.error": "A bug in this server: class and frames; where says in a request or outside.",
    "library.message": "A library logged a warning or an error; its text is left out.",
}
