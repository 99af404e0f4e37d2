"""Add-ons: each folder here whose ``addon.py`` declares what it adds to the plugin.

The core finds them by their place (``registry.py``), so each folder can be deleted.
An ``addon.py`` is a pytest plugin with implementations of pytest's hooks and of ``hookspecs.py``. A
session loads it if an option, the configuration file or a test mentions the plugin. Fixtures stand
in a ``fixtures.py`` beside it, which every session loads. Expensive imports stand inside the
functions that need them (``later.py``). The core also reads these names of an ``addon.py``:

``SETTINGS``
    A frozen dataclass of ``settings.setting`` fields; ``Settings.of(CLASS)`` reads them.
``MARKER``
    Further arguments of the marker ``skill_task``: by name, a check and a noun for the error.
``ROLES``
    Fixtures that call a model, by name: the model's role.
``SEARCHES``, ``GATES``
    Further searches and gates (``search/extensions.py``).
``RULES``
    Rules of the lint: by name, a severity (``refuse`` or ``warn``) and a meaning; with ``faults``.
``faults``
    A function from a file of a skill before and after, and a check if a text of the user has a
    string, to pairs of a rule and an excerpt: the faults of the change.
``edit_check``
    A function that is called once for each training: from all tasks and the text of the skill at
    the start to a function from an edit and the text that it adds to a ``Refusal`` or None.
``alike``
    A function from the tasks of a skill to groups of ids that stay in one split if possible, and a
    function from the tasks with their splits to notes about them.
``PROMPTS``
    Folder with templates of optimizer prompts, ``NAME.md`` each.
``MODES``
    Modes, each an ``options.Mode``.
``choose_workers``
    A function from pytest's configuration and the settings, which is called before a mode chooses
    this process or workers for its rollouts.
``concurrent_runner``
    A function that makes a worker's ``ConcurrentRunner`` (``suite/runner.py``) from its session,
    skill versions, function that delivers a rollout, watchdog, ``slots`` and ``worker``. Called if
    the property ``slots`` of ``SETTINGS``, the rollouts that a worker runs at once, is above 1.
``TARGETS``
    Kinds of targets: by the text before the colon, a function from the settings and the rest of the
    name to settings and a text that identifies what they add. ``SETTINGS`` may have a property
    ``more_targets``: targets on which a comparison of two versions is made once more.
``begun``
    A function that is called when a mode begins, from the open run and its ``modes.plan.Expected``.
``trained``
    A function that is called with the result of each trained skill, accepted or not: from the open
    run and the result to the result that counts.
``compared``
    A function that is called with each accepted training, before its files are written, and with
    each result of ``--skillopt-compare``: from the open run, the result of a skill, the version
    before and the version after, to the result that counts.
``objection``
    A function that is called with each skill that a final comparison has accepted: from the state
    of the search and its ``Measured`` to a reason to refuse the skill, or "".
``vetted``
    A function that is called with each new version before it is written or compared: from the open
    run, its result so far and the version to the result that counts; ``rejected`` ends it.
``vet_folder``
    A function from a command, a root directory and a folder with a version of a skill to an object
    with ``why`` and ``output``: the reason to refuse it, or "", and what the command has printed.
``advice``
    A function from the tasks with their splits and the settings to notes before a training.
``plan``
    A function from the mode and the settings to further lines of ``--collect-only``.
``CASES``
    Readers of ``read_cases``: by the suffix of a file, a function from its path to places and
    cases, each with a ``skill`` (or "").
``SCRIPTS``
    Kinds of scripts that can be trained: by suffix, the program that parses them, or "", and a
    function from a path, the text before and the text after to faults of the change.
``REPORTS``
    Reports of a run: by file name, a function from its result to a text; for ``summary.md`` it also
    takes the most bytes. The first is named where a reader looks for transcripts.
``TABLES``
    Further tables of a report: by title, a function from a result to rows, the head first, or [].
``properties``
    A function from the row of a task in a result to pairs of name and value: properties of its test
    case in a JUnit file.
``history``
    A function from a folder of a project to lines for ``pytest-skillopt show --history``.
``add_commands``
    A function that adds commands to ``pytest-skillopt``, as ``argparse`` subparsers.
``add_reading_commands``
    The same for commands that only read runs: they are listed first, and start without the others.
"""
