"""The only code that touches git and the disk. The bytes are specified in docs/format.md."""
