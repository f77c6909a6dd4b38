"""The acme-circular pack: circular padding for tactix."""
