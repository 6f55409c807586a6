"""The HTTP surface of the service; it translates and never decides how a lookup is answered."""
