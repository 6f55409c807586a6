"""Tables that change while they are looked up: who changes them, who tells, and when it shows."""
