"""Change decoders: messages of Kafka topics and notifications as changes of a dimension."""
