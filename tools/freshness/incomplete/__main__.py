"""Command of the audit: `python -m tools.freshness.incomplete`."""

import argparse
import random
import sys

from service.config.refresh import UNCHECKED
from tools.freshness.incomplete.feed_faults import OF_PUBLISHER, OF_REPLICA
from tools.freshness.incomplete.rounds import audit_incomplete
from tools.freshness.world import AuditPlan


def main() -> int:
    """Run the audit of the command line and print its report; 1 for a row beyond its bound."""
    parser = argparse.ArgumentParser(description="Measure how long incomplete feeds give old rows.")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--unchecked", action="store_true", help="without checks of publications")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    options = parser.parse_args()
    settings = {"publication": UNCHECKED} if options.unchecked else {}
    publisher = AuditPlan("changelog", "mixed", changelog=settings, seed=options.seed)
    replica = AuditPlan("changelog", "mixed", has_replica=True, seed=options.seed)
    reports = [
        audit_incomplete(publisher, OF_PUBLISHER, rounds=options.rounds),
        audit_incomplete(replica, OF_REPLICA, rounds=options.rounds),
    ]
    for report in reports:
        print("\n".join(report.lines()))
    return int(not all(report.is_within_bounds for report in reports))


if __name__ == "__main__":
    sys.exit(main())
