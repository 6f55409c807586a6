"""The sidecar, run as `python -m service`; not part of the wheel."""
