"""What is decided for one dimension: who waits, what is fetched, retried, given up."""
