"""Prompts of the server tests: several kinds of text."""

REPEAT = "Repeat this line four times: the ship sails at noon and the ship returns at night."
SHIP = "The ship sails at noon and the ship returns at night. " * 4 + "The"
"""Text that repeats itself, so that the target accepts many tokens of prompt lookup."""
COUNT = "One, two, three, four, five, six, seven, eight, nine, ten, eleven, twelve, thirteen,"
"""Text that the target continues up to any max_tokens."""

PLAIN = (
    "The capital of France is",
    "def fibonacci(n):\n    if n < 2:\n        return n\n",
    COUNT,
    'Translate to German: "The weather is fine today."',
    "In einem tiefen, dunklen Wald lebte ein alter Bär. Der alte Bär",
    "A list of emoji: 😀 😃 😄 😁 😆 😀 😃 😄",
    "| name | age |\n|---|---|\n| Ann | 31 |\n| Ben | 27 |\n",
    # Longer than one block of the KV cache, so that requests share and copy its prefix.
    "The ship sails at noon. " * 60 + "Then",
)
CHATS = (
    [{"role": "user", "content": REPEAT}],
    [{"role": "user", "content": "What is 17 + 25? Think step by step."}],
    [
        {"role": "system", "content": "You answer in one sentence."},
        {"role": "user", "content": "Why is the sky blue?"},
    ],
    [
        {"role": "user", "content": "Name three fruits."},
        {"role": "assistant", "content": "Apple, pear, plum."},
        {"role": "user", "content": "Again, in capital letters, please."},
    ],
)
