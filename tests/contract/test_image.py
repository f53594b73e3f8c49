"""The image: what it holds, what it runs as, and what a build can see."""

from __future__ import annotations

import json
import re
import subprocess
from fnmatch import fnmatch
from pathlib import Path

import image_check
import yaml

from service.settings import load_settings
from tests.contract.dockerfile import all_of, environment, stages
from tests.contract.manifests_rendered import only
from tests.contract.tree import files
from tests.tools import ROOT, require_tool

FILE = ROOT / "deploy" / "Dockerfile"
HEAD, BUILD, LAST = stages(FILE.read_text())
RUNS = environment(LAST)

COMPILERS = re.compile(r"\b(gcc|g\+\+|clang|make|build-essential|python3?-dev|apt-get|apk)\b")


def shown() -> set[str]:
    """The tracked files that a build sees, by the rules of ``.dockerignore``."""
    kept = set()
    for path in map(str, files()):
        seen = True
        for line in (ROOT / ".dockerignore").read_text().splitlines():
            rule = line.removeprefix("!").removeprefix("**/")
            if line and not line.startswith("#") and covers(rule, path):
                seen = line.startswith("!")
        if seen:
            kept.add(path)
    return kept


def covers(rule: str, path: str) -> bool:
    """Whether a rule is about a file: it names it or a folder above it, or is a pattern for it."""
    return path == rule or path.startswith(f"{rule}/") or fnmatch(path, rule)


def test_hadolint_finds_nothing() -> None:
    """Hadolint, which knows how image files go wrong, has nothing to say."""
    found = subprocess.run(
        [require_tool("hadolint"), str(FILE)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert found.returncode == 0, found.stdout + found.stderr


def test_what_runs_is_not_what_builds() -> None:
    """Two stages of one base: the last takes the installation from the first, and no source."""
    (base,) = all_of(HEAD, "ARG")
    assert base.startswith("BASE=")
    assert all_of(BUILD, "FROM") == ["${BASE} AS build"]
    assert all_of(LAST, "FROM") == ["${BASE}"]
    assert all_of(LAST, "COPY") == ["--from=build /seawall /seawall"]


def test_nothing_compiles_and_nothing_is_fetched_by_hand() -> None:
    """No stage installs a compiler or a system package; the last one downloads nothing."""
    for stage in (BUILD, LAST):
        assert not COMPILERS.search(" ".join(all_of(stage, "RUN")))
    assert not re.search(r"install|curl|wget", " ".join(all_of(LAST, "RUN")).replace("uninst", ""))
    assert not all_of(BUILD + LAST, "ADD")


def test_every_package_is_held_to_its_hash() -> None:
    """Packages come from the locks, each with its hash and no wishes; CPU is the default."""
    (runs, *_), arguments = all_of(BUILD, "RUN"), all_of(BUILD, "ARG")
    assert "TORCH=cpu" in arguments
    installs = [part for part in runs.split("&&") if " install " in part]
    assert len(installs) == 3
    for part in installs:
        assert "--require-hashes --no-deps" in part
    for choice in ("cpu", "cuda", "build", "audio", "tables", "vision"):
        assert (ROOT / "deploy" / "locks" / f"{choice}.txt").is_file()
    assert "deploy/locks/build.txt" in installs[0]
    assert "deploy/locks/${TORCH}.txt" in installs[1]
    # Nothing more by default; a lock that is not there ends the build.
    assert 'EXTRAS=""' in arguments
    assert "for extra in ${EXTRAS}" in installs[2]
    assert 'deploy/locks/${extra}.txt" || exit 1' in installs[2]


def test_nobody_in_particular_and_no_shell() -> None:
    """It runs as a numbered user without rights, and its first process is the server itself."""
    (user,) = all_of(LAST, "USER")
    assert all(int(part) >= 10000 for part in user.split(":"))
    assert json.loads(all_of(LAST, "ENTRYPOINT")[0]) == ["seawall"]
    assert json.loads(all_of(LAST, "CMD")[0]) == ["serve"]
    assert all_of(LAST, "STOPSIGNAL") == ["SIGTERM"]


def test_its_settings_are_settings() -> None:
    """The variables of ours are settings, and it listens where the exposed port is."""
    ours = {name: value for name, value in RUNS.items() if name.startswith("SEAWALL_")}
    settings = load_settings([], ours)
    assert all_of(LAST, "EXPOSE") == [str(settings.address.port)]
    assert not settings.address.is_loopback
    assert settings.model_name == "fill-mask-small"


def test_it_is_offline_and_writes_to_one_place() -> None:
    """Nothing is asked of a hub, and whatever a library writes goes to ``/tmp``."""
    assert RUNS["HF_HUB_OFFLINE"] == RUNS["HF_HUB_DISABLE_TELEMETRY"] == "1"
    places = {name: RUNS[name] for name in RUNS if name == "HOME" or re.search("HOME|DIR$", name)}
    assert len(places) >= 5
    assert all(f"{place}/".startswith("/tmp/") for place in places.values())
    assert all_of(LAST, "WORKDIR") == ["/tmp"]
    assert RUNS["PYTHONDONTWRITEBYTECODE"] == "1"
    assert environment(BUILD)["UV_COMPILE_BYTECODE"] == "1"


def test_health_is_liveness_at_the_port_of_the_image() -> None:
    """The container's health is ``/livez``: a loading or overloaded server is not restarted."""
    (health,) = all_of(LAST, "HEALTHCHECK")
    command = json.loads(health[health.index("[") :])
    port = load_settings([], {"SEAWALL_BIND": RUNS["SEAWALL_BIND"]}).address.port
    assert command[0] == "python"
    assert f"http://127.0.0.1:{port}/livez" in command[-1]


def test_what_is_checked_is_what_is_run() -> None:
    """The check runs an image with the options of the head, the user and the manifests' memory."""
    head = " ".join(re.findall(r"(?m)^# ( +(?:docker run|--).*)", FILE.read_text()))
    shown = head[head.index("docker run") :].replace("\\", "").split()
    flags = shown[shown.index("--read-only") : shown.index("seawall")]
    assert [*image_check.HARDENED] == flags
    assert f"{image_check.USER}:{image_check.USER}" in all_of(LAST, "USER")
    assert int(flags[flags.index("--memory") + 1][:-1]) << 30 == image_check.MEMORY_BYTES
    (container,) = only("base", "Deployment")["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"]["memory"] == f"{image_check.MEMORY_BYTES >> 30}Gi"
    stop_s = int(flags[flags.index("--stop-timeout") + 1])
    settings = load_settings([], RUNS)
    assert stop_s * 1000 >= settings.drain_delay_ms + settings.drain_timeout_ms + 5000


def test_the_output_that_is_shown_is_that_of_the_check() -> None:
    """The paper shows each law that the check asks, in its order, and all of them hold."""
    paper = (ROOT / "docs" / "operations.md").read_text()
    shown = re.findall(r"(?m)^    (ok|BROKEN) +(.*)", paper)
    assert {word for word, _ in shown} == {"ok"}
    laws = re.findall(r'yield f?"([^"]*)"', Path(image_check.__file__).read_text())
    assert len(shown) == len(laws)
    for (_, line), law in zip(shown, laws, strict=True):
        assert line.startswith(law.partition("{")[0])


def test_a_build_sees_what_it_needs() -> None:
    """The context holds the package, its description and the locks, and nothing else."""
    seen = shown()
    package = {str(path) for path in files() if path.parts[0] == "service"}
    assert package <= seen
    assert {path for path in seen - package if not path.startswith("deploy/locks/")} == {
        "LICENSE", "README.md", "pyproject.toml",
    }  # fmt: skip
    copied = {word for rest in all_of(BUILD, "COPY") for word in rest.split()[:-1]}
    assert all(any(covers(one, path) for path in seen) for one in copied)


def test_no_secret_and_no_host() -> None:
    """No argument or variable carries a secret, and the base is named without a mirror's host."""
    assert not re.search(r"(?i)token|password|secret|_key", FILE.read_text())
    images = re.findall(r"\S+/python:\S+", " ".join(all_of(HEAD, "ARG")))
    assert all(one.startswith("BASE=docker.io/library/") for one in images)


def test_the_compose_file_builds_this_image() -> None:
    """Where the compose file builds, it builds this file, with the tree as its context."""
    compose = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())
    build = compose["services"]["seawall"].get("build")
    if build is None:
        return
    folder = (ROOT / "deploy" / build["context"]).resolve()
    assert folder == ROOT
    assert (folder / build["dockerfile"]) == FILE
    assert {*build.get("args", {})} <= {one.partition("=")[0] for one in all_of(BUILD, "ARG")}
