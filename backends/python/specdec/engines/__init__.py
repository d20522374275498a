"""The interfaces of engines, and adapters for calls over BLS, within the process, and by text."""
