"""Checks of everything in k8s/: manifests, kustomizations and the Helm chart; no cluster needed."""
