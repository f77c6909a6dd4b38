"""The command ``tactix-sdk``, and the packs that it starts; with ``tactix_sdk.testing`` all of the
distribution ``tactix-sdk``. No pack imports it.
"""
