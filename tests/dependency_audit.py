"""Asks for advisories of every version in the lock files: `python -m tests.dependency_audit`.

The asking is pip-audit's; here stands what its answers mean. Where nobody answers, that is said
loudly and fails nothing: a developer without a way to the index still has to get on.
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
    """What is known of one lock file; `fault` is why nothing is, if so."""

    file: Path
    findings: tuple[str, ...] = ()
    audited: int = 0
    skipped: tuple[str, ...] = ()  # nobody could be asked about them
    fault: str = ""


def audit(file: Path, *, ignored: Iterable[str], program: Sequence[str] = PIP_AUDIT) -> Audit:
    """Ask about every version in a lock file."""
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
    asked = [each for each in dependencies if "skip_reason" not in each]
    fault = "" if asked else (skipped[0]["skip_reason"] if skipped else "it names no dependency")
    findings = [_finding(each, found) for each in asked for found in each.get("vulns", ())]
    return Audit(
        file, tuple(findings), len(asked), tuple(each["name"] for each in skipped), fault=fault
    )


def _finding(dependency: dict[str, Any], found: dict[str, Any]) -> str:
    remedy = ", ".join(found.get("fix_versions", ())) or "no version yet"
    return f"{dependency['name']} {dependency['version']}: {found['id']}; mended in {remedy}"


def ignored_advisories(file: Path, today: date) -> list[str]:
    """Those that are known and do no harm here, until the day that stands with each of them."""
    entries = tomllib.loads(file.read_text()).get("ignored", ())
    for entry in entries:
        if set(entry) != {"id", "reason", "until"} or not entry["reason"]:
            message = (
                f"{file}: each advisory needs an id, a reason, and a day until which it counts"
            )
            raise ValueError(message)
    return [entry["id"] for entry in entries if today <= entry["until"]]


def report(audits: Sequence[Audit]) -> tuple[int, list[str]]:
    """The exit code, and the lines that tell why."""
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
    """Audit all lock files; 1 if there is a finding."""
    ignored = ignored_advisories(IGNORED, datetime.now(UTC).date())
    code, lines = report([audit(file, ignored=ignored) for file in LOCK_FILES])
    sys.stdout.write("\n".join([*lines, ""]))
    return code


if __name__ == "__main__":
    sys.exit(main())
