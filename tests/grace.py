"""The lateness that tests accept on a loaded machine.

It is shorter than the shortest other timeout, three seconds; `bench` measures speed.
"""

GRACE_S = 2.0
