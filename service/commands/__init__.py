"""The command line: one small module for each command, thin over configuration and HTTP."""
