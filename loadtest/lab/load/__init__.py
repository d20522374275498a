"""The bench of a server with many streams, while their number grows."""
