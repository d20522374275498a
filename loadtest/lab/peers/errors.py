"""The error of a peer: it fills a row of the table and never ends the bench."""


class PeerError(Exception):
    """A peer could not be installed, started or asked; the text says why, in one line."""
