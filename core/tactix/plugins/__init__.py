"""How plugins get in: identity (what they are called), hookspecs, loader, registry, session, in
that order.
"""
