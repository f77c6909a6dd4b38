"""How plugins get in: names and identity (what they are called), hookspecs, pack, loader, registry,
session, in that order.
"""
