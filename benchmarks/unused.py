"""Costs of the plugin if it is installed and not used, whether or not the project names it.

Runs a suite of 100 plain tests, in a project without any key of the plugin and in one with some,
and adds up the processor time of all that is the plugin's: the loading of its module, the
registration of its parts, and each call of its hooks. The shortest of each over many runs counts,
so a busy machine changes little; the difference of whole sessions varied by 25 ms::

    python benchmarks/unused.py [--runs 20] [--target 12]

The exit code is 1 when a sum is above the target in milliseconds, or when ``openai`` was imported.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

FILES, TESTS = 4, 25
HEAVY = ("openai", "pydantic", "diskcache", "jinja2", "yaml", "markdown_it", "numpy")
KEYS = """
skillopt_target = openai:a-model
skillopt_max_cost = 3
skillopt_lanes = 4
"""
PROBE = f'''
"""Times the plugin's code by the name of the part; loaded before the plugin."""
import collections, functools, importlib.metadata, json, sys, time
import pluggy

SPENT, DEPTH = collections.Counter(), [0]


def timed(name, function):
    @functools.wraps(function)
    def run(*args, **kwargs):
        if DEPTH[0]:
            return function(*args, **kwargs)
        DEPTH[0] += 1
        began = time.process_time()
        try:
            return function(*args, **kwargs)
        finally:
            SPENT[name] += time.process_time() - began
            DEPTH[0] -= 1
    return run


def of_plugin(name):
    return name.startswith("pytest_skillopt")


load = importlib.metadata.EntryPoint.load
register = pluggy.PluginManager.register


def timed_load(self):
    return (timed("load", load) if of_plugin(self.value) else load)(self)


def timed_register(self, plugin, name=None):
    own = of_plugin(getattr(plugin, "__name__", type(plugin).__module__))
    found = (timed("register", register) if own else register)(self, plugin, name)
    for caller in self.get_hookcallers(plugin) or () if own else ():
        for impl in caller.get_hookimpls():
            # A wrapper runs all others within it, so it is left out.
            if impl.plugin is plugin and not (impl.wrapper or impl.hookwrapper):
                impl.function = timed(caller.name, impl.function)
    return found


importlib.metadata.EntryPoint.load = timed_load
pluggy.PluginManager.register = timed_register


def pytest_unconfigure(config):
    heavy = sorted({set(HEAVY)!r} & sys.modules.keys())
    with open("spent.json", "w") as file:
        json.dump([SPENT, heavy, bool(SPENT["load"] and SPENT["register"])], file)
'''


def write_suite(folder: Path) -> None:
    """100 tests as plain as they come, and the probe."""
    body = "".join(f"def test_{number}():\n    assert {number} >= 0\n\n" for number in range(TESTS))
    for number in range(FILES):
        (folder / f"test_file_{number}.py").write_text(body)
    (folder / "probe_of_costs.py").write_text(PROBE)


def run(folder: Path) -> tuple[dict[str, float], list[str]]:
    """Run the suite once in a process of its own; return seconds by part, and heavy modules."""
    unwanted = ("PYTEST_ADDOPTS", "PYTHONDONTWRITEBYTECODE")
    environ = {name: value for name, value in os.environ.items() if name not in unwanted}
    # Compiled code is kept, as on a user's machine, but not in this checkout.
    environ |= {"PYTHONPYCACHEPREFIX": str(folder / "bytecode"), "PYTHONPATH": str(folder)}
    command = [sys.executable, "-m", "pytest", "-q", "-q", "-p", "probe_of_costs"]
    subprocess.run(command, cwd=folder, env=environ, stdout=subprocess.DEVNULL, check=True)
    spent, heavy, is_whole = json.loads((folder / "spent.json").read_text())
    if not is_whole:
        raise SystemExit("the probe has not seen the plugin: pytest loads it in another way now")
    return spent, heavy


def measure(folder: Path, keys: str, runs: int) -> tuple[float, str, list[str]]:
    """Return the milliseconds that the plugin adds, its largest parts, and heavy modules."""
    (folder / "pytest.ini").write_text(f"[pytest]\nnorecursedirs = bytecode\n{keys}")
    run(folder)
    least: dict[str, float] = collections.defaultdict(lambda: float("inf"))
    for _ in range(runs):
        spent, heavy = run(folder)
        for name, seconds in spent.items():
            least[name] = min(least[name], seconds)
    largest = sorted(least, key=lambda name: least[name], reverse=True)[:5]
    told = ", ".join(f"{name} {1000 * least[name]:.1f}" for name in largest)
    return 1000 * sum(least.values()), told, heavy


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--target", type=float, default=12.0)
    options = parser.parse_args()
    failed = False
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_suite(folder)
        for case, keys in (("not named", ""), ("named", KEYS)):
            added, parts, heavy = measure(folder, keys, options.runs)
            print(f"installed, not used, {case}: {added:.1f} ms ({parts})")
            print(f"  heavy modules: {', '.join(heavy) or 'none'}")
            failed |= added > options.target or "openai" in heavy
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
