"""`specdec build render` and `manifest`: write a model repository for a pair, and check it later.

The repository has no `ensemble` model (tokenize, specdec on ids, detokenize): the steps of an
ensemble see each streamed response separately, so a detokenizer cannot complete a character that
the previous round began. On tritonserver 2.51.0, a character whose bytes came in two rounds turned
into two replacement characters.
"""
