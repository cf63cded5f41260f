"""No test here is of commits."""

from tests.making.bursts import _turns_of_a_burst, _verbs_of_a_burst  # noqa: F401 - pytest finds them here
