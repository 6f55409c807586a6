"""The decisions of Sidelook, shared by both sides; nothing here does I/O or reads a clock.

Inside the project import the module that you mean; this root holds no code of its own.
"""
