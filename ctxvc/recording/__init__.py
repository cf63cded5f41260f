"""Automatic recording: growing files become sessions, and git hooks link commits to them.

A hook must be quick, so the modules that it loads (`places`, `log`) load nothing heavy.
"""
