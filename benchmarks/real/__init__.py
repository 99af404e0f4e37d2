"""Two suites for a small real model, and the lines that an optimizer may offer for them."""
