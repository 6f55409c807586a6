"""Checks, generators and test environments for the development of the project; not shipped."""
