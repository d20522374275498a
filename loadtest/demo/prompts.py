"""The prompts of `make demo`: two for each task, written for this project."""

_HARBOUR = (
    "The harbour was rebuilt after the storm of 1911. The new wall was twice as high as the old "
    "one, and the fishing boats moved to the northern basin, where they still lie today. Every "
    "August the town celebrates the day the wall was closed."
)
_HEATING = (
    "Please remember that the office is closed on Friday because the heating is being repaired. "
    "The work starts at eight and should be finished by the evening, so everything is back to "
    "normal on Monday morning."
)
_VALVE = (
    "The engineer opens the valve, reads the pressure, writes it into the log and closes the "
    "valve again before she leaves the room."
)
_FOX = (
    "The quik brown fox jumpd over the lazy dog and than it run home to its familly in the forrest."
)

DEMO_PROMPTS: dict[str, tuple[str, ...]] = {
    "chat": (
        "I have two free days in a city by the sea. What should I do?",
        "Explain to a friend why regular sleep matters.",
    ),
    "summary": (
        f"Summarize in one sentence: {_HARBOUR}",
        f"Shorten this note to its main point: {_HEATING}",
    ),
    "rewrite": (
        f"Rewrite in the past tense: {_VALVE}",
        f"Correct the spelling: {_FOX}",
    ),
    "code": (
        "Write a Python function that returns the n-th Fibonacci number.",
        "Write a Python function that counts the vowels in a string.",
    ),
    "maths": (
        "A box holds 12 eggs. How many eggs are in 7 boxes? Explain step by step.",
        "A train travels 60 km in one hour. How far does it travel in three and a half hours?",
    ),
    "questions": (
        "What is photosynthesis?",
        "What is the capital of France, and what is it known for?",
    ),
}
