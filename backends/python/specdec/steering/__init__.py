"""The controller: decides by measurement whether and how to speculate.

- `request_steering.py` asks for the choices of one request, and reports its rounds.
- `controller.py` chooses for all requests: by predicted speed, or by the rules of another mode
  (`modes.py`). `choices.py` has the choices, and `tasks.py` the state of each task.
- `predictions.py` predicts the speed of a choice from `acceptance_estimates.py` and `costs.py`,
  whose estimates are means from `estimates.py`. `steps.py` has the steps that are timed, and
  `load.py` counts requests and what they do.
- `copying.py` finds out what the copy drafters would have proposed, `drift.py` whether a drafter
  has changed, and `control_group.py` what speculation really gains.
- `settings.py` has the operator's settings, and `state_file.py` keeps measurements over a restart.
"""
