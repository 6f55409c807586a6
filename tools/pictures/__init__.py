"""Pictures of the documentation, generated from the code where it decides what they show."""
