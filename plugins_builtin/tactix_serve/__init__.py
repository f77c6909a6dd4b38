"""Engines that serve requests: dynamic batching, and a server for the Open Inference Protocol."""
