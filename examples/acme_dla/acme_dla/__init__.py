"""The acme-dla pack: an accelerator of few layers, emulated on the CPU."""
