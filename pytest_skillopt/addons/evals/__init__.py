"""Add-on for ``evals/evals.json`` and ``evals/eval_queries.json`` of a skill as pytest items.

Loaded only with ``--skillopt-evals`` or ``skillopt_evals = yes``.
"""
