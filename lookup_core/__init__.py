"""Pure core of Sidelook, shared by client and service: no I/O, no clock, no threads."""
