"""Make the Kubernetes manifests that other files decide, and check them all.

Usage: ``python deploy/manifests.py [--check] [--schemas FOLDER]``

Without an option the PrometheusRule is written anew from ``deploy/prometheus``; ``--check`` changes
nothing and fails if it is stale. ``--schemas`` renders every overlay and holds its custom resources
to the CustomResourceDefinitions in FOLDER (needs kubectl and the packages jsonschema and pyyaml);
the definitions are those of the clusters' operators and no part of this repository.

Laws
- A rule stands once, in ``deploy/prometheus``, where promtool tests it; its text is taken as it
  stands, comments and all.
- A definition is read strictly: where it lists the fields, a field that is not listed is a fault,
  though a cluster would only drop it.
"""

from __future__ import annotations

import argparse
import importlib
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
FOLDER = HERE / "kubernetes"
RULES = FOLDER / "components" / "monitoring" / "prometheusrule.yaml"
SOURCES = ("rules.yaml", "alerts.yaml")

HEAD = """\
# Made from deploy/prometheus by `python deploy/manifests.py`; change it there.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: seawall
spec:
  groups:
"""


def rules() -> str:
    """The PrometheusRule: the groups of every file of rules, two steps further in."""
    groups = []
    for name in SOURCES:
        text = (HERE / "prometheus" / name).read_text()
        groups += text[text.index("\ngroups:\n") + len("\ngroups:\n") :].splitlines()
    return HEAD + "".join(f"  {line}".rstrip() + "\n" for line in groups)


# ---------------------------------------------------------------- rendering


def roots() -> list[Path]:
    """Every folder that can be applied: the base and the overlays."""
    return [FOLDER / "base", *sorted((FOLDER / "overlays").iterdir())]


def render(folder: Path) -> list[dict[str, Any]]:
    """What kustomize makes of a folder, one document for each object.

    Raises:
        FileNotFoundError: there is no kubectl.
        RuntimeError: kustomize does not take it; the message is its own.
    """
    beside = shutil.which("kubectl", path=Path(sys.executable).parent)
    command = [beside or "kubectl", "kustomize", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode:
        raise RuntimeError(done.stderr)
    yaml = importlib.import_module("yaml")
    return list(yaml.safe_load_all(done.stdout))


# ---------------------------------------------------------------- custom resources


def definitions(folder: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """The schema of each version and kind that the definitions in a folder know, made strict."""
    yaml = importlib.import_module("yaml")
    found = {}
    for path in sorted(folder.glob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            if (document or {}).get("kind") != "CustomResourceDefinition":
                continue
            spec = document["spec"]
            for version in spec["versions"]:
                name = f"{spec['group']}/{version['name']}"
                schema = version["schema"]["openAPIV3Schema"]
                found[name, spec["names"]["kind"]] = strict(schema, top=True)
    return found


def strict(schema: dict[str, Any], *, top: bool = False) -> dict[str, Any]:
    """A schema of a definition in which fields that are not listed are faults."""
    made: dict[str, Any] = {}
    for key, value in schema.items():
        if key in {"properties", "patternProperties"}:
            made[key] = {name: strict(one) for name, one in value.items()}
        elif key in {"items", "additionalProperties"} and isinstance(value, dict):
            made[key] = strict(value)
        elif key not in {"format", "default", "x-kubernetes-validations"}:
            made[key] = value
    if schema.get("x-kubernetes-int-or-string"):
        made["type"] = ["integer", "string"]
        made.pop("anyOf", None)
    # The definition leaves what every object has to the cluster.
    if top:
        made["properties"]["metadata"] = {"type": "object"}
    closed = "properties" in schema and "additionalProperties" not in schema
    if closed and not schema.get("x-kubernetes-preserve-unknown-fields"):
        made["additionalProperties"] = False
    return made


def faults(
    objects: Sequence[dict[str, Any]], known: dict[tuple[str, str], dict[str, Any]]
) -> Iterator[str]:
    """What the definitions do not take of the objects whose kinds they know, with its place."""
    jsonschema = importlib.import_module("jsonschema")
    for one in objects:
        schema = known.get((one["apiVersion"], one["kind"]))
        if schema is not None:
            for error in jsonschema.Draft202012Validator(schema).iter_errors(one):
                place = ".".join(map(str, error.absolute_path))
                yield f"{one['kind']} {one['metadata']['name']}: {place}: {error.message}"


def check_against(folder: Path) -> int:
    """Hold every overlay to the definitions in a folder; the exit code."""
    known = definitions(folder)
    found, seen = [], set[str]()
    for root in roots():
        objects = render(root)
        seen |= {one["kind"] for one in objects if (one["apiVersion"], one["kind"]) in known}
        found += [f"{root.name}: {line}" for line in faults(objects, known)]
    print("\n".join(found) or f"The definitions take every {', '.join(sorted(seen))}")
    return int(bool(found) or not seen)


def main(argv: Sequence[str] | None = None) -> int:
    """Run it; the exit code is 1 for a stale file or a fault."""
    parser = argparse.ArgumentParser(prog="python deploy/manifests.py")
    parser.add_argument("--check", action="store_true", help="change nothing, fail if stale")
    parser.add_argument(
        "--schemas", type=Path, metavar="FOLDER",
        help="check custom resources against the CustomResourceDefinitions in this folder",
    )  # fmt: skip
    args = parser.parse_args(argv)
    if args.schemas:
        return check_against(args.schemas)
    if RULES.exists() and RULES.read_text() == rules():
        return 0
    if args.check:
        print(f"{RULES.name} is stale: python deploy/manifests.py")
        return 1
    RULES.write_text(rules())
    print(f"wrote {RULES.name}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
