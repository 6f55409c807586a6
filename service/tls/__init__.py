"""TLS of the listeners: what a certificate is worth, and how another takes its place."""
