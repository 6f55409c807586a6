"""The Python worker's side: tasks that look up the records of one partition."""
