"""External scanner of new versions: ``skillopt_scan``."""
