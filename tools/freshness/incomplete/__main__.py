"""Command of the audit: `python -m tools.freshness.incomplete`."""

import argparse
import random
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from service.config.refresh import UNCHECKED
from tools.freshness.incomplete.connector_faults import (
    ALTERED_LATE,
    SETTINGS,
    SKIPPED,
)
from tools.freshness.incomplete.feed_faults import LATE_REPLICA, OF_PUBLICATION, OF_TOPIC, FeedFault
from tools.freshness.incomplete.run import audit_incomplete
from tools.freshness.world import AuditPlan

_OF_REPLICA = "replica"
_TWINS: Mapping[str, Mapping[str, Any]] = {  # {name: settings of a plan}
    "unchecked": {"changelog": {"publication": UNCHECKED}},
    "unaudited": {"audit": None},
}


def _parts(chance: random.Random) -> Mapping[str, Sequence[FeedFault]]:
    """Each fault once, in runs by name; only the last one of a run ends the trust in the feed."""
    shown = (*OF_TOPIC, *OF_PUBLICATION)
    return {
        "feeds": [*chance.sample(shown, len(shown)), SKIPPED],
        "values": [ALTERED_LATE],
        _OF_REPLICA: [LATE_REPLICA],
    }


def main() -> int:
    """Run the audit of the command line and print its report; 1 for a row beyond its bound."""
    parser = argparse.ArgumentParser(description="Measure how long incomplete feeds give old rows.")
    parser.add_argument("--twin", choices=_TWINS, help="without checks or audits")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--part", choices=_parts(random.Random(0)), help="one run only")
    options = parser.parse_args()
    settings = {**SETTINGS, "seed": options.seed, **_TWINS.get(options.twin, {})}
    are_within = [
        _is_within_bounds(
            AuditPlan("changelog", "mixed", has_replica=name == _OF_REPLICA, **settings), faults
        )
        for name, faults in _parts(random.Random(options.seed)).items()
        if options.part in (None, name)
    ]
    return int(not all(are_within))


def _is_within_bounds(plan: AuditPlan, faults: Sequence[FeedFault]) -> bool:
    report = audit_incomplete(plan, faults)
    print("\n".join(report.lines()), flush=True)
    return report.is_within_bounds


if __name__ == "__main__":
    sys.exit(main())
