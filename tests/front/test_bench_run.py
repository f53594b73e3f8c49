"""``seawall bench`` from the first look to the report."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from service.bench.command import bench
from service.bench.report import Report, to_json
from tests.e2e.server import Server, clean_environment
from tests.front.bench_stub import ENOUGH_S, SHORT, serving
from tests.tools import ROOT

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.mark.e2e
def test_real_run(tmp_path: Path) -> None:
    """The report of a real run balances: with itself, with the server's metrics, with its table."""
    report_file, plot = tmp_path / "r.json", tmp_path / "r.png"
    with Server("--model", "synthetic:cpu", "--deadline-ms", "1000") as server:
        before = server.outcomes()
        done = subprocess.run(
            [
                sys.executable, "-m", "service", "bench", server.url,
                "--rates", "10,4x", "--seconds", "2", "--warmup-s", "0.5", "--capacity-s", "1",
                "--retries", "backoff", "--json", str(report_file), "--plot", str(plot),
            ],
            cwd=ROOT, env=clean_environment(), capture_output=True, text=True, check=False,
            timeout=ENOUGH_S,
        )  # fmt: skip
        server.wait_idle()
        after = server.outcomes()
    assert done.returncode == 0, done.stderr

    report = msgspec.json.decode(report_file.read_bytes(), type=Report)
    assert json.loads(to_json(report)) == json.loads(report_file.read_bytes())
    assert (report.server.task, report.server.model) == ("synthetic", "synthetic:cpu")
    assert report.server.limits is not None
    assert report.server.limits.deadline_ms == report.load.deadline_ms == 1000
    assert report.capacity is not None
    assert report.capacity.rps > 0
    [slow, fast] = report.points
    assert (slow.label, slow.rate_rps) == ("10/s", 10)
    assert fast.rate_rps == pytest.approx(4 * report.capacity.rps)
    counted: dict[str, int] = {}
    for point in report.points:
        assert point.attempts == sum(point.outcomes.values()) > 0
        assert point.server is not None
        assert point.server.outcomes == point.outcomes  # what the server counted, code by code
        for code, count in point.outcomes.items():
            counted[code] = counted.get(code, 0) + count
    grown = {code: count - before.get(code, 0) for code, count in after.items()}
    assert all(grown[code] >= count for code, count in counted.items())
    assert fast.outcomes["overloaded"] > 0
    assert fast.server is not None
    assert fast.server.batch_items is not None
    assert fast.server.batch_items >= 1

    for words in ("synthetic:cpu", "C = ", "10/s", "4x", "Limits: deadline 1000 ms", "Knee: "):
        assert words in done.stdout
    assert [line.split(":")[0] for line in done.stderr.splitlines()] == ["C", "10/s", "4x"]
    picture = plot.read_bytes()
    assert picture.startswith(PNG)
    assert picture.endswith(b"IEND\xaeB`\x82")
    assert picture[12:16] == b"IHDR"
    assert int.from_bytes(picture[16:20]) > 400


def test_runs_without_status_and_metrics(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where metrics and limits cannot be read the report has nulls in their place, and a plot."""
    report_file, plot = tmp_path / "r.json", tmp_path / "r.svg"
    with serving(status=(404, {"code": "not_found"})) as (url, here):
        assert bench([url, *SHORT, "--json", str(report_file), "--plot", str(plot)]) == 0
        assert not any("x-request-timeout-ms" in asked.headers for asked in here.asked)
    report = msgspec.json.decode(report_file.read_bytes(), type=Report)
    [point] = report.points
    assert (report.server.limits, report.capacity, point.server) == (None, None, None)
    assert (report.load.deadline_ms, point.late_share, point.success_share) == (None, 0, 1)
    assert report.knee is not None
    assert "20/s" in capsys.readouterr().out
    assert plot.read_text().startswith("<?xml")
