"""The drafters: one module for each kind, all with the interface in `protocol.py`.

- `copying/` has the copy drafters, which cost no pass: lookup, suffix and the client's prediction.
- `models/` has the drafters that ask a model: a draft engine or the target's head. `ahead.py`
  drafts while the target verifies, and `translating.py` handles a draft model whose tokenizer
  differs from the target's.
- `combining/` has the drafters that use others: `first.py` takes the first proposal, `tree.py`
  combines all in a tree, `vote.py` takes a vote at each position, and `late.py` lets a drafter
  begin in the second round.
- `steered.py` carries out the controller's choice, and `scripted.py` replays drafts from a file.
- `registry.py` has all kinds: a new drafter is a module and an entry there. Its function `build`
  takes a `DrafterContext` (`context.py`).
- `names.py` has the names that a request may give, and `asked.py` reads them.
"""
