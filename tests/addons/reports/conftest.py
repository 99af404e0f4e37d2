"""Results to report."""

from made_results import make_result

__all__ = ["make_result"]
