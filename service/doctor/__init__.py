"""Diagnosis of a sidecar and its surroundings: read-only checks, findings with remedies."""
