"""Where the files of the data package are."""

from demo.flights import data_package


def test_package_holds_all_five_files() -> None:
    """The flights and the four tables lie where the demonstration looks for them."""
    names = {"flights.csv.zip", "planes.csv", "airports.csv", "airlines.csv", "weather.csv"}

    assert {name for name in names if not (data_package() / name).is_file()} == set()
