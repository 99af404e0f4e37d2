from pytest_skillopt.report.result import TaskRow


def task_properties(row: TaskRow) -> list[tuple[str, str]]:
    return [("x", "1")]
