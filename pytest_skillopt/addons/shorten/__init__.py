"""Search `shorten`: make a skill shorter while its tasks pass as often."""
