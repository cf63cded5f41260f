"""Tests of replay: its measures worked out on paper, and what it reads of a recording."""
