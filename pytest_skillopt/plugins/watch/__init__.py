"""Command ``pytest-skillopt watch``: follow a run in the browser."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse


def pytest_skillopt_commands(commands: argparse._SubParsersAction[Any]) -> None:
    from pytest_skillopt.cli import add_run_arguments

    text = "follow a run in the browser, only on this machine"
    parser = commands.add_parser("watch", help=text)
    text = "port on 127.0.0.1 (default: a free one)"
    parser.add_argument("--port", type=int, default=0, help=text)
    parser.add_argument("--no-open", action="store_true", help="only print the address")
    add_run_arguments(parser)
    parser.set_defaults(handle=_watch)


def _watch(args: argparse.Namespace) -> int:
    from pytest_skillopt.cli import fail
    from pytest_skillopt.plugins.watch.server import Watch
    from pytest_skillopt.run.past import home_of

    run = Path(args.run) if args.run and Path(args.run).is_dir() else None
    run = run or home_of(args).find(args.run or "")
    try:
        server = Watch(run, args.port)
    except OSError as error:
        return fail(f"watch: port {args.port}: {error.strerror or error}")
    print(f"{run.name}: {server.url}\nCtrl-C ends the watcher, not the run.", flush=True)
    if not args.no_open:
        import webbrowser

        webbrowser.open(server.url)
    with contextlib.suppress(KeyboardInterrupt), server:
        server.serve_forever()
    return 0
