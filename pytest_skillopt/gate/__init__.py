"""How a decision is made: counts in, a verdict out. Knows no settings, no pytest, no model."""
