"""Checks, generators and test environments for people who work on the project; not shipped."""
