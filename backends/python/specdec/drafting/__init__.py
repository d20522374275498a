"""One module per way to guess, behind one small protocol.

`lookup.py` repeats what the text said before, `engine.py` asks a small model (`ahead.py`
while the target verifies), `auto.py` takes the
first that has something to offer.
"""
