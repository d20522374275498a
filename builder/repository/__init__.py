"""Commands that change a model repository: `pair`, `add-draft`, `add-head` and `colocate`.

Each has a module of its own with `add_options` and `run`. `pair_weights` reads which weights a pair
file names, and `weights` writes draft and head in the form that engines load.
"""
