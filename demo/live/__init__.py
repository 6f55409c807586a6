"""Live run of the demonstration: tables change while the stream looks them up."""
