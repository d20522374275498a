"""OpenAI's API as this gateway speaks it: the fields of requests, and the form of answers.

`chat` and `completions` read a request of `schema`, turn it into requests to the model `specdec`
(`requests`), and give answers their form (`answer_format`, `answer_events`, `errors`).
"""
