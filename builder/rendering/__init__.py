"""From a pair description to a model repository that Triton loads, and the line that starts it.

There is no `ensemble` model (tokenize, specdec on ids, detokenize) beside `specdec` on purpose: the
steps of an ensemble see each streamed response alone, so a detokenizer behind a round cannot know
the characters that the round before began. Tried on tritonserver 2.51.0: bytes of one character in
two rounds come out as two replacement characters. `specdec` takes and streams text itself.
"""
