"""What goes wrong with a peer: a row of the table, never the end of the bench."""


class PeerError(Exception):
    """A peer could not be installed, started or asked; the text says why, in one line."""
