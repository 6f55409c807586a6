"""Coverage-guided fuzzing of the frame decoders."""
