"""The drafters: one module for each kind, all with the interface in `protocol.py`.

- Copy drafters, which cost no pass: `lookup.py`, `suffix.py` and `prediction.py`; they find
  matches with `matching.py`.
- Draft models: `engine.py`; `ahead.py` drafts while the target verifies, and `translating.py`
  handles a draft model with another tokenizer than the target's.
- The target's head: `head.py`.
- Several drafters: `first.py` takes the first proposal, `tree.py` combines all in a tree, `vote.py`
  takes a vote at each position, and `steered.py` carries out the controller's choice.
- `registry.py` has all kinds: a new drafter is a module and an entry there. Its function `build`
  takes a `DrafterContext` (`context.py`).
- `asked.py` reads the drafter that a request names.
- `late.py` lets a drafter begin in the second round, and `scripted.py` replays drafts from a file.
"""
