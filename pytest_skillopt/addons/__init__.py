"""Add-ons: each folder here whose ``addon.py`` declares what it adds to the plugin.

The core finds them by their place (``registry.py``), so each folder can be deleted. To add one,
write a folder with an ``addon.py`` that makes an ``ADDON`` (``pytest_skillopt/addon.py`` lists what
it may bring) and that is a pytest plugin, with implementations of pytest's hooks and of
``hookspecs.py``. A session loads it if an option, the configuration file or a test mentions the
plugin, so that expensive imports stand in functions, or behind ``later.py``. Fixtures stand in a
``fixtures.py`` beside it, which every session loads.
"""
