"""Checks of a deployment: manifests, pod template, Spark configuration, Kubernetes."""
