"""The C++ backend `tensorrtllm`, refusals and quirks included; its tokens come from a torch engine.

Marks in the comments: [V] read in NVIDIA's sources, [R] deduced from them. Not simulated, and
refused with these words: beam search, several sequences, stop words, guided decoding, LoRA.
Documented only: the flag that chooses between a random and a constant threshold is one for all
requests there, and the last new one of a batch decides it (createNewDecoderRequests.cpp [V]).
"""
