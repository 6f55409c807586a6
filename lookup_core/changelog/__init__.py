"""Changes of a table, and the messages that tell them."""
