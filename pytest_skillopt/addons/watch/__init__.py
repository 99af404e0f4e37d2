"""``pytest-skillopt watch``: a run in the browser, from its journal and ``result.json`` alone."""
