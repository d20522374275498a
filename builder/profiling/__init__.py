"""`specdec build profile`: measure what passes and drafts cost, before the server is used.

The command puts a server under load (`load`) with every choice that its controller may make. The
controller learns from that as it does in service, and what it has learned is the profile. So there
is no second cost model.
"""
