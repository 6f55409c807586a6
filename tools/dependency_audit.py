"""Dependency audit: pip-audit over both lock files, `python -m tools.dependency_audit`.

An advisory fails the audit. An index that does not respond is reported and does not fail it,
so that developers without a network can run `make check`.
"""

import json
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LOCK_FILES = (ROOT / "requirements" / "service.txt", ROOT / "requirements" / "dev.txt")
IGNORED = Path(__file__).with_name("ignored_advisories.toml")
PIP_AUDIT = (str(Path(sys.executable).with_name("pip-audit")),)
TIMEOUT_S = 300.0
LOUD = "!" * 72


@dataclass(frozen=True, slots=True)
class Audit:
    """Result for one lock file; `fault` is the reason if it was not audited."""

    file: Path
    findings: tuple[str, ...] = ()
    audited: int = 0
    skipped: tuple[str, ...] = ()  # unknown to the index
    fault: str = ""


def audit(file: Path, *, ignored: Iterable[str], program: Sequence[str] = PIP_AUDIT) -> Audit:
    """Audit every version in a lock file."""
    left_out = [part for each in ignored for part in ("--ignore-vuln", each)]
    options = ("--require-hashes", "--disable-pip", "--progress-spinner", "off", "--format", "json")
    command = [*program, "--requirement", str(file), *options, *left_out]
    try:
        ended = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
        dependencies = json.loads(ended.stdout)["dependencies"]
    except (OSError, subprocess.TimeoutExpired) as error:
        return Audit(file, fault=f"{type(error).__name__}: {error}")
    except (ValueError, KeyError, TypeError):
        return Audit(file, fault=(ended.stderr.strip().splitlines() or ["no answer"])[-1])
    return _audit(file, dependencies)


def _audit(file: Path, dependencies: Sequence[dict[str, Any]]) -> Audit:
    skipped = [each for each in dependencies if "skip_reason" in each]
    audited = [each for each in dependencies if "skip_reason" not in each]
    fault = "" if audited else (skipped[0]["skip_reason"] if skipped else "it names no dependency")
    findings = [_finding(each, found) for each in audited for found in each.get("vulns", ())]
    return Audit(
        file, tuple(findings), len(audited), tuple(each["name"] for each in skipped), fault=fault
    )


def _finding(dependency: dict[str, Any], found: dict[str, Any]) -> str:
    remedy = ", ".join(found.get("fix_versions", ())) or "no version yet"
    return f"{dependency['name']} {dependency['version']}: {found['id']}; fixed in {remedy}"


def ignored_advisories(file: Path, today: date) -> list[str]:
    """Ids of the ignored advisories whose last day is not before `today`; raises ValueError."""
    entries = tomllib.loads(file.read_text()).get("ignored", ())
    for entry in entries:
        if set(entry) != {"id", "reason", "until"} or not entry["reason"]:
            raise ValueError(f"{file}: an ignored advisory needs id, reason and until: {entry}")
    return [entry["id"] for entry in entries if today <= entry["until"]]


def report(audits: Sequence[Audit]) -> tuple[int, list[str]]:
    """The exit code, and the lines of the report."""
    lines: list[str] = []
    for each in audits:
        lines += [f"{each.file.name}: {finding}" for finding in each.findings]
        if each.fault:
            lines += [LOUD, f"{each.file.name}: NOT AUDITED: {each.fault}", LOUD]
        elif each.skipped:
            lines += [LOUD, f"{each.file.name}: not audited: {', '.join(each.skipped)}", LOUD]
        if each.audited and not each.findings:
            lines.append(f"{each.file.name}: {each.audited} dependencies without an advisory")
    return int(any(each.findings for each in audits)), lines


def main() -> int:
    """Audit all lock files; 1 if there is an advisory."""
    ignored = ignored_advisories(IGNORED, datetime.now(UTC).date())
    code, lines = report([audit(file, ignored=ignored) for file in LOCK_FILES])
    sys.stdout.write("\n".join([*lines, ""]))
    return code


if __name__ == "__main__":
    sys.exit(main())
