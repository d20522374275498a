"""Benches of the controller: live, on recorded requests, and its rules that find a task."""
