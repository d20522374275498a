"""The draft lengths of a request, and the drafter that the controller steers.

Two places build the drafters of requests: the orchestrator (`serving/drafters`), and the drafters
for engines with a batch loop of their own (`batch_drafting`). They share this part.
"""
