"""What the client's operator holds: records between watermarks, their questions and answers."""
