"""Instruction templates written for this project; nothing here comes from a benchmark."""

from __future__ import annotations

import random

SUMMARISE = (
    "Give a short summary of this text.\n\n{text}",
    "Summarize the passage below in three sentences.\n\n{text}",
    "{text}\n\nWhat are the main points of the text above?",
    "Summarize: {text}",
    "Please write a brief summary of the following article.\n\n{text}",
    "TL;DR of this, please:\n\n{text}",
    "In one paragraph, say what this is about:\n{text}",
)
QUESTION = (
    "{text}\n\nWhat does this text say about {topic}?",
    "Read the passage and answer the question.\n\nPassage: {text}\n\nQuestion: What is {topic}?",
    "Based on the following, who or what is {topic}?\n\n{text}",
    "Context: {text}\n\nQuestion: why does {topic} matter here?\nAnswer:",
    (
        "Answer using only these documents.\n\n[1] {text}\n\n[2] {other}\n\nQuestion: what is "
        "said about {topic}?"
    ),
    (
        "Here are two passages.\n\nPassage A: {text}\n\nPassage B: {other}\n\nUse them to answer: "
        "what do we learn about {topic}?"
    ),
    "Use the notes below to answer.\n\n{text}\n\n{other}\n\nWhen and where does {topic} appear?",
)
REWRITE = (
    "Rewrite this in simple English.\n\n{text}",
    "Make a bullet list of the facts in this text:\n\n{text}",
    "Explain this passage to a ten-year-old.\n\n{text}",
    "List the names and places mentioned here:\n\n{text}",
    "Rephrase the following in a friendlier tone:\n\n{text}",
    "Turn this passage into a short letter.\n\n{text}",
)
TRANSLATE = (
    "Translate this German text into English: {text}",
    "Translate German to English: {text}",
    "What does this mean in English?\n\n{text}",
    "Please translate the following sentence from German to English.\n\n{text}",
    "{text}\n\nGive the English translation of the sentence above.",
    "German: {text}\nEnglish:",
)
CODE = (
    "Complete this Python function.\n\n{text}",
    "Write the body of the function below and explain it briefly.\n\n```python\n{text}```",
    "{text}",
)
FUNCTION = (
    "Explain what this Python function does, line by line.\n\n```python\n{text}```",
    "Write unit tests for this function.\n\n```python\n{text}```",
    "Rewrite this function with type hints.\n\n```python\n{text}```",
    "{text}\n\nSimplify the code above.",
    "Show an example of how to call this:\n\n{text}",
    "Turn this function into a class.\n\n```python\n{text}```",
)
FOLLOW_UPS = (
    "Make it shorter.",
    "Can you give an example?",
    "Rewrite that as a list.",
    "Explain the second point in more detail.",
    "Now say the same in a formal style.",
    "Are you sure? Check your answer step by step.",
    "Summarize your answer in two sentences.",
    "Continue.",
    "What are the drawbacks?",
    "How would you explain this to a child?",
)
OPENINGS = [
    *[""] * 8,
    *("Who ", "When did ", "Where is ", "What is the ", "How many ", "Which ", "Why do "),
    *("who ", "what ", "when was ", "how does ", "where did ", "what is the name of "),
    *("Explain ", "Describe ", "Compare ", "What are the ", "How can I ", "Tell me "),
    *("Write a story about ", "Write a poem ", "Write an email ", "Write a news article about "),
    *("Imagine you are ", "Pretend to be ", "You are a ", "Act as ", "Draft a ", "Compose "),
    *("Write a Python function ", "Write a program ", "Implement ", "How do I use "),
    *("Solve ", "Calculate ", "If a ", "A train ", "There are ", "Find the ", "Suppose "),
    *("Given the following ", "Extract ", "Classify ", "Suggest ", "Give me ", "Can you "),
    *("What happens if ", "What would ", "Is it true that ", "Should ", "Could you explain "),
    *("In physics, ", "In biology, ", "In economics, ", "In history, ", "In a small town, "),
]
"""Openings of user turns that the target completes; after "" it also writes the opening."""
_NAMES = (
    *("Maya", "Omar", "Lena", "Tom", "Priya", "Jonas", "Aisha", "Ken"),
    *("Rosa", "Felix", "Nina", "Sam", "Ivy", "Leo", "Dana", "Hugo"),
)
_THINGS = (
    *("apples", "pencils", "stickers", "cookies", "marbles", "books"),
    *("tickets", "eggs", "stamps", "flowers", "cups"),
)
_PLACES = ("at the market", "at school", "in a shop", "on the farm", "at the fair", "at home")
_MATH = (
    (
        "{a} has {x} {t}. {b} gives {a} {y} more, and then {a} sells {z} of them {p}. How many {t} "
        "does {a} have left?"
    ),
    (
        "{a} buys {y} boxes of {t}. Each box holds {x} {t} and costs ${z}. How much does {a} pay, "
        "and how many {t} are there in total?"
    ),
    (
        "A class of {x} children shares {w} {t} equally, with {a} taking the rest. How many {t} "
        "does each child get, and how many does {a} get?"
    ),
    (
        "{a} walks {y} miles every day for {z} days, and {b} walks twice as far. How many miles do "
        "they walk together?"
    ),
    (
        "{a} earns ${x} an hour and works {y} hours a day, {z} days a week. How much does {a} earn "
        "in {d} weeks?"
    ),
    "{a} is {z} years older than {b}. {b} is {x} years old now. How old will {a} be in {y} years?",
    (
        "{p}, {a} sold {w} {t} on Monday and {d}% more on Tuesday. How many {t} were sold in "
        "both days?"
    ),
    (
        "{a} reads {y} pages in the morning and {z} pages at night. How many days does a book of "
        "{w} pages take?"
    ),
    "What is {x} times {y} plus {w}?",
    (
        "A tank holds {w} liters. {a} fills it at {y} liters a minute while {z} liters a minute "
        "leak out. How long until it is full?"
    ),
    "If 3 {t} cost ${y}, how much do {x} {t} cost? Show your work.",
    "Solve for x: {y}x + {z} = {w}.",
)
_DOMAINS = {
    "capital": (
        *("Peru", "Norway", "Kenya", "Japan", "Chile", "Egypt"),
        *("Canada", "Poland", "Vietnam", "Morocco", "Iceland"),
    ),
    "person": (
        "invented the telephone",
        "wrote Faust",
        "discovered penicillin",
        "painted the Night Watch",
        "was the first woman in space",
        "composed the Moonlight Sonata",
        "founded Rome",
        "led the first trip around the world",
        "plays the detective in the old film",
        "won the first football world cup",
        "sang the theme of the spy film",
        "built the Eiffel Tower",
    ),
    "thing": (
        *("the longest river in Europe", "a black hole", "the boiling point of water"),
        *("photosynthesis", "the Magna Carta", "inflation", "a prime number", "the Silk Road"),
        *("the largest desert", "DNA", "the Stamp Act", "a hash table", "the speed of light"),
        *("the Treaty of Versailles", "a volcano", "the federal reserve", "an isotope"),
        *("the ozone layer", "the nitrogen cycle", "a sonnet"),
    ),
}
_SHORT = (
    ("capital", "what is the capital of {v}"),
    ("capital", "which language do people speak in {v}"),
    ("capital", "what is {v} famous for?"),
    ("capital", "when did {v} become independent"),
    ("person", "who {v}"),
    ("person", "Who {v}, and when?"),
    ("thing", "what is {v}"),
    ("thing", "Explain {v} in two sentences."),
    ("thing", "where does the name of {v} come from"),
    ("thing", "why is {v} important?"),
    ("thing", "how does {v} work"),
)


def math_problem(rng: random.Random) -> str:
    """Return an arithmetic word problem with random names and numbers."""
    first, second = rng.sample(_NAMES, 2)
    return rng.choice(_MATH).format(
        a=first,
        b=second,
        t=rng.choice(_THINGS),
        p=rng.choice(_PLACES),
        x=rng.randint(6, 60),
        y=rng.randint(2, 30),
        z=rng.randint(2, 12),
        w=rng.randint(60, 400),
        d=rng.choice((2, 3, 4, 5, 10, 20, 25, 50)),
    )


def short_question(rng: random.Random) -> str:
    """Return a short factual question in the style of a search box."""
    domain, text = rng.choice(_SHORT)
    return text.format(v=rng.choice(_DOMAINS[domain]))
