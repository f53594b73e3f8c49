"""table-question-answering: the cells of a table that answer a question.

The stock call itself, one table after the other: it needs pandas (the extra ``tables``), and its
tokenizer drops rows that are too many for the model.
"""

from __future__ import annotations

from service.core.errors import Refused, invalid
from service.tasks.base import Task
from service.tasks.checks import choice, is_text, only, switch, table
from service.tasks.parameter import Json
from service.tasks.schemas import COUNT, STRING, Schema, list_of, members, one_of, text

MAX_COLUMNS = 32
MAX_ROWS = 64
"""As the models of this kind are made: more rows are dropped or have no number of their own."""

MAX_CELL_CHARS = 1000
MAX_QUERY_CHARS = 500

_TABLE = (
    f"send an object of 1 to {MAX_COLUMNS} columns: each a name and a list of 1 to {MAX_ROWS} "
    "strings, as many as the others"
)


def _column(name: str, cells: Json, pointer: str) -> list[str]:
    if not isinstance(cells, list) or not 1 <= len(cells) <= MAX_ROWS:
        raise Refused(invalid(pointer, _TABLE))
    for cell in cells:
        if cell != "" and not is_text(cell, MAX_CELL_CHARS):
            wanted = f"send strings of up to {MAX_CELL_CHARS} characters as cells"
            raise Refused(invalid(pointer, wanted))
    if not is_text(name, MAX_CELL_CHARS):
        raise Refused(invalid(pointer, "send columns with names"))
    return list(cells)


def _parse(value: Json, pointer: str) -> Json:
    if not isinstance(value, dict) or value.keys() != {"table", "query"}:
        raise Refused(invalid(pointer, "send an object with 'table' and 'query'"))
    if not is_text(value["query"], MAX_QUERY_CHARS):
        wanted = f"send a question of 1 to {MAX_QUERY_CHARS} characters"
        raise Refused(invalid(f"{pointer}/query", wanted))
    columns = value["table"]
    here = f"{pointer}/table"
    if not isinstance(columns, dict) or not 1 <= len(columns) <= MAX_COLUMNS:
        raise Refused(invalid(here, _TABLE))
    checked = {name: _column(name, cells, here) for name, cells in columns.items()}
    if len({len(cells) for cells in checked.values()}) != 1:
        raise Refused(invalid(here, _TABLE))
    return {"table": checked, "query": value["query"]}


_CELLS = list_of(one_of({"const": ""}, text(MAX_CELL_CHARS)), 1, MAX_ROWS)
_COLUMNS: Schema = {
    "type": "object",
    "minProperties": 1,
    "maxProperties": MAX_COLUMNS,
    "propertyNames": text(MAX_CELL_CHARS),
    "additionalProperties": _CELLS,
}
_PLACES = list_of(list_of(COUNT, 2, 2))

_EXAMPLE = {"Harbour": ["Hamburg", "Rotterdam", "Genoa"], "Berths": ["110", "180", "60"]}

TASK = Task(
    name="table-question-answering",
    media="text",
    example={"table": _EXAMPLE, "query": "How many berths has Genoa?"},
    canary={"table": _EXAMPLE, "query": "Which harbour has 110 berths?"},
    way="whole",
    needs={"pandas": "tables"},
    structured=True,
    parse=_parse,
    schema=members(table=_COLUMNS, query=text(MAX_QUERY_CHARS)),
    answer=members(
        answer=STRING,
        coordinates=_PLACES,
        cells=list_of(STRING),
        aggregator=STRING,
        optional=("aggregator",),
    ),
    parameters=table(
        switch("sequential", "forward", ": whether questions build on each other"),
        choice("padding", "prepare", ("do_not_pad", "longest", "max_length")),
        only("truncation", "prepare", "true: rows that are too many are dropped", value=True),
    ),
    bad_examples=(
        ("text", "a table is an object"),
        ({"table": {}, "query": "a"}, "a table has columns"),
        ({"table": {"a": ["1"], "b": []}, "query": "a"}, "columns have as many rows"),
        ({"table": {"a": [1]}, "query": "a"}, "cells are strings"),
        ({"table": {"a": ["1"]}, "query": ""}, "a question is not empty"),
    ),
    unit="characters / 4",
)
