"""Reference generator: writes pages of docs/reference from the code that they describe."""
