"""What may keep a sidecar from working: seen from outside, told with a remedy, never mended."""
