"""Runs the code blocks of README.md and of the documentation's pages as a reader would."""
