"""The only code that touches git and the disk. DESIGN §4; the bytes are specified in docs/format.md."""
