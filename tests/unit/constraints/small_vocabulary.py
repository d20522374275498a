"""A tokenizer of a few tokens, for which everything can be enumerated."""

from llguidance import LLTokenizer, TokenizerWrapper

from specdec.constraints.compiler import GuideCompiler
from specdec.constraints.guide import EBNF_GRAMMAR, Guide

TOKENS = (b"a", b"b", b"ab", b"<end>")
END = 3


class _Small:
    """The attributes that llguidance asks of a tokenizer."""

    eos_token_id = END
    bos_token_id = None
    special_token_ids = (END,)

    def __init__(self, tokens=TOKENS):
        self.tokens = list(tokens)
        self.eos_token_id = len(tokens) - 1
        self.special_token_ids = [self.eos_token_id]

    def __call__(self, text):
        text = text.encode() if isinstance(text, str) else text
        found = []
        while text:
            longest = max(
                (n for n, each in enumerate(self.tokens[:-1]) if text.startswith(each)),
                key=lambda n: len(self.tokens[n]),
            )
            found.append(longest)
            text = text[len(self.tokens[longest]) :]
        return found


def tokenizer(tokens=TOKENS):
    """Return a tokenizer of llguidance with these tokens; the last one is the end token."""
    return LLTokenizer(TokenizerWrapper(_Small(tokens)))


def compiler(tokens=TOKENS):
    """Return a compiler for these tokens; the last one is the end token."""
    return GuideCompiler(lambda: tokenizer(tokens))


def constraint(grammar, tokens=TOKENS):
    """Return the constraint of a grammar in Lark's form."""
    return compiler(tokens).compile(Guide(EBNF_GRAMMAR, grammar)).constraint()
