"""Tests of the pure core: properties over generated conversations, ledgers and recordings."""
