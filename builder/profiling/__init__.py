"""`specdec build profile`: what passes and guesses cost, measured before anybody is served.

No second cost model: the server is put under load in every way that the controller may choose, its
own controller learns from that as it does in service, and what it has learned is the profile.
"""
