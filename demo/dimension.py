"""The four dimensions of the demonstration: tables, keys and added columns."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Dimension:
    """One table, its key, and the columns that it adds to a flight."""

    name: str
    types: dict[str, str]  # {column: SQL type}, in the order of the file
    on: dict[str, str]  # {column of the flight: key column}
    columns: tuple[str, ...]  # added to a flight
    prefix: str  # of the added columns; prevents name clashes

    @property
    def key(self) -> tuple[str, ...]:
        """Columns of the primary key."""
        return tuple(self.on.values())

    @property
    def status_column(self) -> str:
        """Added column with the outcome of the lookup."""
        return f"{self.prefix}lookup"


PLANES = Dimension(
    name="planes",
    types={
        "tailnum": "text",
        "year": "integer",
        "type": "text",
        "manufacturer": "text",
        "model": "text",
        "engines": "integer",
        "seats": "integer",
        "speed": "integer",
        "engine": "text",
    },
    on={"tailnum": "tailnum"},
    columns=("year", "type", "manufacturer", "model", "engines", "seats", "engine"),
    prefix="plane_",
)
AIRPORTS = Dimension(
    name="airports",
    types={
        "faa": "text",
        "name": "text",
        "lat": "double precision",
        "lon": "double precision",
        "alt": "integer",
        "tz": "integer",
        "dst": "text",
        "tzone": "text",
    },
    on={"dest": "faa"},
    columns=("name", "lat", "lon", "alt", "tzone"),
    prefix="dest_",
)
AIRLINES = Dimension(
    name="airlines",
    types={"carrier": "text", "name": "text"},
    on={"carrier": "carrier"},
    columns=("name",),
    prefix="airline_",
)
WEATHER = Dimension(
    name="weather",
    types={
        "origin": "text",
        "year": "integer",
        "month": "integer",
        "day": "integer",
        "hour": "integer",
        "temp": "double precision",
        "dewp": "double precision",
        "humid": "double precision",
        "wind_dir": "integer",
        "wind_speed": "double precision",
        "wind_gust": "double precision",
        "precip": "double precision",
        "pressure": "double precision",
        "visib": "double precision",
        "time_hour": "timestamp with time zone",
    },
    on={"origin": "origin", "time_hour": "time_hour"},
    columns=("temp", "humid", "wind_dir", "wind_speed", "precip", "pressure", "visib"),
    prefix="weather_",
)
DIMENSIONS = (PLANES, AIRPORTS, AIRLINES, WEATHER)
FOLLOWED = (PLANES, AIRPORTS)  # changed in a live run
