"""A Kubernetes cluster of one node, in namespaces of this machine."""
