"""The sidecar: an application, run as `python -m service`; not part of the wheel."""
