"""The sidecar, run as `sidelook` or `python -m service`; a distribution of its own."""
