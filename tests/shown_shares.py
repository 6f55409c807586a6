"""Rounded shares as the status page and the command `status` show them."""

SHOWN_SHARES = [  # (part, whole, text)
    (0, 5, "0 %"),
    (1, 100_000, "0.1 %"),
    (1, 16, "6.3 %"),
    (1, 6, "16.7 %"),
    (3, 4, "75.0 %"),
    (99_999, 100_000, "99.9 %"),
    (5, 5, "100 %"),
]
