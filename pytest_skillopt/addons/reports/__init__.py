"""Reports as files: ``report.html`` and ``summary.md``."""
