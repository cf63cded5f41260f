"""Transcripts of other programs → events. One module a format, each with `FORMAT`, `sniff(head)` and `events(recording)`."""
