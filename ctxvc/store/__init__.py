"""The only code that runs git and writes a store to disk. docs/format.md specifies the bytes."""
