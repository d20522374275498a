"""Requests of the scripts for the package `openai`."""

import openai

# Base URL and key come from OPENAI_BASE_URL and OPENAI_API_KEY.
CLIENT = openai.OpenAI(max_retries=0)
MODEL = "specdec"


def chat(expected, **more):
    """Return the arguments of the greedy chat, with `more` on top."""
    return {
        "model": MODEL,
        "messages": expected.messages,
        "max_tokens": expected.max_tokens,
        "temperature": 0,
        **more,
    }


def completion(expected, **more):
    """Return the arguments of the greedy completion, with `more` on top."""
    return {
        "model": MODEL,
        "prompt": expected.prompt,
        "max_tokens": expected.max_tokens,
        "temperature": 0,
        **more,
    }
