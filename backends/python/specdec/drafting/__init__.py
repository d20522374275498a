"""One module per way to guess, behind one small protocol.

`lookup.py` repeats what the text said before, `engine.py` asks a small model, `auto.py` takes the
first that has something to offer.
"""
