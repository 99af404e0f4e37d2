"""Reports as files, ``report.html`` and ``summary.md``, and the table of all runs."""
