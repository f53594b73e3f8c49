"""MLServer: a runtime of one's own with adaptive batching.

Its settings stand in two files, which ``peers_list`` writes.
"""

from __future__ import annotations

import json

from mlserver import MLModel  # type: ignore[import-not-found]
from mlserver.codecs import StringCodec  # type: ignore[import-not-found]
from mlserver.types import InferenceRequest, InferenceResponse  # type: ignore[import-not-found]

from tests.bench.peers_servers.knobs import Knobs
from tests.bench.peers_servers.model import Model


class FillMask(MLModel):  # type: ignore[misc]
    """The runtime."""

    async def load(self) -> bool:
        self._model = Model(Knobs.read())
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        texts = StringCodec.decode_input(payload.inputs[0])
        written = [json.dumps(answer) for answer in self._model.answers(texts)]
        outputs = [StringCodec.encode_output("answers", written)]
        return InferenceResponse(model_name=self.name, outputs=outputs)
