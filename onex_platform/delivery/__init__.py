"""Delivery: a consumer that tries again, and the dead letters of whoever has a handler.

One partition of the source and the partition of the same number of its `rty` topic are a lane. The
lane's rules are pure (`lane`, `entries`); `consumer` has the effects, `letters` what operators ask.
"""
