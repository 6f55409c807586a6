"""An Apache Kafka of one broker, and Debezium beside it, for as long as they are needed."""
