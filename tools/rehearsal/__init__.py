"""Rehearsal of an executor pod's life from its manifests, without a cluster."""
