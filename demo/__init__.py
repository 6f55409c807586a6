"""Demonstration: a year of real flights, enriched from four tables; not part of the wheel."""
