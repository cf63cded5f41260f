"""Tests of the policies: each against the laws, on recorded runs and generated ones, and against its own paper."""
