"""What the stock pipeline says: a program of its own, so that pytest's process needs no torch.

Reads a JSON list of ``[inputs, parameters]`` from standard input, writes a JSON list of answers.
"""

from __future__ import annotations

import json
import sys
import warnings


def main() -> None:
    """Answer everything on standard input."""
    warnings.simplefilter("ignore")
    from transformers import pipeline
    from transformers.utils import logging

    from service.settings import Settings

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    pipe = pipeline("fill-mask", model=Settings().model_path)
    cases = json.load(sys.stdin)
    json.dump([pipe(inputs, **parameters) for inputs, parameters in cases], sys.stdout)


if __name__ == "__main__":
    main()
