"""Forwarding: real sockets on this machine, and what passed over them, byte for byte."""
