"""The tests. Whatever the shell says, Python keeps what it compiles: tests start hundreds of processes."""

import os
import sys

sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
