"""`specdec build profile`: measures what passes and drafts cost, before the server is used.

There is no second cost model. The command puts a server under load with every choice that its
controller may make. The controller learns from that as it does in service, and what it has learned
is the profile.
"""
