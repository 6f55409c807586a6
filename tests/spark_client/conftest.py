"""What the tests of the client share: one Spark session."""

from tests.spark_session import spark_session

__all__ = ["spark_session"]
