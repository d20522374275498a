"""A double of the C++ backend `tensorrtllm`, with its refusals and quirks.

A torch engine generates its tokens. The mark [V] in comments means: read in NVIDIA's sources. The
double does not simulate beam search, several sequences, stop words, guided decoding and LoRA, and
refuses requests for them. One quirk is only described here. In the backend a single flag for all
requests chooses between a random and a constant acceptance threshold, and the last new request of a
batch sets it (createNewDecoderRequests.cpp [V]).
"""
