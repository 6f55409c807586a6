"""Splits of a source: which there are, who reads them, how far, and who has to wait."""
