"""Colours of the pictures on light and dark pages."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tint:
    """The colours of one kind of shape; `text` is readable on `fill`."""

    fill: str
    stroke: str
    text: str


@dataclass(frozen=True, slots=True)
class Palette:
    """The colours of one version of all pictures; the background of the page shows through."""

    name: str
    page: str  # of the documentation, for the contrast
    text: str
    muted: str  # secondary texts
    line: str
    plain: Tint
    inner: Tint  # boxes inside a plain one
    blue: Tint
    orange: Tint
    green: Tint
    red: Tint
    violet: Tint

    @property
    def tints(self) -> tuple[Tint, ...]:
        """The colours of all kinds of shapes."""
        return (
            self.plain,
            self.inner,
            self.blue,
            self.orange,
            self.green,
            self.red,
            self.violet,
        )


LIGHT = Palette(
    name="light",
    page="#ffffff",
    text="#1d2330",
    muted="#4c5566",
    line="#667085",
    plain=Tint("#f4f6f9", "#98a2b3", "#1d2330"),
    inner=Tint("#ffffff", "#98a2b3", "#1d2330"),
    blue=Tint("#dceafc", "#2467b3", "#123f73"),
    orange=Tint("#fde7d0", "#b35c00", "#6d3800"),
    green=Tint("#daf2e4", "#1f8050", "#0e4d2e"),
    red=Tint("#fcdfe0", "#b8323a", "#86141c"),
    violet=Tint("#ece3fb", "#6f46b5", "#472682"),
)
DARK = Palette(
    name="dark",
    page="#1e2129",
    text="#e8ebf1",
    muted="#b7becb",
    line="#8d97a8",
    plain=Tint("#272c37", "#5d6778", "#e8ebf1"),
    inner=Tint("#313846", "#6b7689", "#e8ebf1"),
    blue=Tint("#1f3c60", "#6aa8f0", "#c4dcfb"),
    orange=Tint("#4f3617", "#e6a052", "#f9d8b0"),
    green=Tint("#1c4331", "#58c08a", "#b8ead0"),
    red=Tint("#53282d", "#f0868d", "#fac8ca"),
    violet=Tint("#3b2d5c", "#ae91f0", "#dccffb"),
)
PALETTES = (LIGHT, DARK)
