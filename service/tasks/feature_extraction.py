"""feature-extraction: a vector for each token of a text.

The answer of one text is a list of one list of vectors, as the stock call gives it, and it never
holds the vectors of padding.
"""

from __future__ import annotations

from service.tasks.base import Task
from service.tasks.checks import switch, table
from service.tasks.schemas import NUMBER, list_of

TASK = Task(
    name="feature-extraction",
    media="text",
    example="The harbour wall was built of grey stone.",
    canary="It still stands.",
    parameters=table(
        switch("truncation", "prepare", ": whether a text that is too long is cut"),
    ),
    bad_examples=((5, "the input is a string"),),
    # What a model adds on top of its vectors is not part of the answer.
    spare_weights=("pooler.",),
    wide_answers=True,
    answer=list_of(list_of(list_of(NUMBER)), 1, 1),
)
