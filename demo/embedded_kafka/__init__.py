"""Apache Kafka with one broker, and Debezium, as processes of demonstration and tests."""
