"""LitServe: an API whose ``predict`` gets the requests that were gathered.

It reads the annotations of ``decode_request`` as they stand: they must not be put off.
"""

from typing import Any

import litserve as ls  # type: ignore[import-not-found]

from tests.bench.peers_servers.knobs import TIMEOUT_S, WAIT_MS, Knobs
from tests.bench.peers_servers.model import Model


class FillMask(ls.LitAPI):  # type: ignore[misc]
    """One worker."""

    def setup(self, device: str) -> None:
        self._model = Model(Knobs.read())

    def decode_request(self, request: dict[str, Any]) -> str:
        text: str = request["text"]
        return text

    def batch(self, inputs: list[str]) -> list[str]:
        return list(inputs)

    def predict(self, texts: list[str]) -> list[Any]:
        return self._model.answers(texts)

    def unbatch(self, output: list[Any]) -> list[Any]:
        return output

    def encode_response(self, output: Any) -> dict[str, Any]:
        return {"output": output}


def main() -> None:
    """Serve."""
    knobs = Knobs.read()
    api = FillMask(max_batch_size=knobs.batch, batch_timeout=WAIT_MS / 1000)
    server = ls.LitServer(
        api, accelerator="cpu", workers_per_device=knobs.workers, timeout=TIMEOUT_S
    )
    server.run(host="127.0.0.1", port=knobs.port, generate_client_file=False)


if __name__ == "__main__":
    main()
