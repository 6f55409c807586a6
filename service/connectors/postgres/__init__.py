"""PostgreSQL connector: lookups, snapshot loads, notifications."""
