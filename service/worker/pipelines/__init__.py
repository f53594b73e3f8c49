"""The pipelines that a worker can own, one file for each kind, found by task.

Laws
- Importing this package costs nothing: torch and transformers come in with the task's own module,
  and never with the synthetic one.
- The runner sees a :class:`~service.worker.interface.Pipeline` and nothing else.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from service.tasks import task_named

if TYPE_CHECKING:
    from service.worker.interface import Pipeline
    from service.worker.wire import Load


def load_pipeline(load: Load) -> Pipeline:
    """Load and warm up what LOAD asks for; takes seconds to minutes.

    Raises:
        CannotLoad: the model cannot be served, for a reason that has a name.
        Exception: whatever else the libraries raise.
    """
    from service.worker.interface import CannotLoad

    if load.task == "synthetic":
        from service.worker.synthetic import SyntheticPipeline

        return SyntheticPipeline.from_load(load)
    try:
        task = task_named(load.task)
    except KeyError:
        raise CannotLoad("wrong_task", "This task is not one that can be served.") from None
    for module, extra in task.needs.items():
        if find_spec(module) is None:
            message = f"This task needs {module}: install the extra '{extra}'."
            raise CannotLoad("error", message)

    from service.worker.pipelines.folder import check_folder, find_folder

    folder = find_folder(load.model, load.revision, trust_remote_code=load.trust_remote_code)
    check_folder(folder)  # says what is wrong before the libraries take seconds to import

    if task.name == "fill-mask":
        from service.worker.pipelines.fill_mask import FillMask

        return FillMask.from_load(load, folder)

    if task.media != "text" or task.way == "speaking":
        from service.worker.pipelines.media import load_media

        return load_media(load, folder, task)

    from service.worker.pipelines.tasked import load_task

    return load_task(load, folder, task)


__all__ = ["load_pipeline"]
