"""Report as a page: ``report.html``."""
