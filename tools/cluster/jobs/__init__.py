"""Programs of the cluster's jobs, copied into their image."""
