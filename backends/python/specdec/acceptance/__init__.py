"""Rules for drawing tokens and for verifying draft tokens; no rule knows an engine or a server.

- Drawing: `sampling.py` has the parameters of a draw, `warping.py` applies them to the logits,
  `banned_text.py` finds the tokens that would spell a banned text, and `noise.py` makes the noise.
- Verifying: `modes.py` names the modes. `exact.py` compares tokens, `rules.py` compares
  probabilities, and `trees.py` does both for trees. `chance.py` makes the random decisions of the
  rules.
"""
