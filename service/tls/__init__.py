"""Server certificates of the TLS listener: validation and rotation."""
