"""Read the tool calls in an answer's text, as it arrives.

`call_reader` reads one call, `answer_readers` find the calls in an answer.
"""
