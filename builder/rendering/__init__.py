"""Rendering: writes a model repository for a pair, with the script that starts it.

`specdec` takes and streams text itself. There is on purpose no `ensemble` model (tokenize, specdec
on ids, detokenize). The steps of an ensemble see each streamed response alone, so a detokenizer
cannot know a character that the previous round began. Tried on tritonserver 2.51.0: if two rounds
share the bytes of one character, it comes out as two replacement characters.
"""
