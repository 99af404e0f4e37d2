"""Prose and commands that spoil, special-case or read tests and graders."""

# ruff: noqa: E501 -- a regular expression broken at 100 columns is harder to read, not easier
from __future__ import annotations

from pytest_skillopt.skill.pattern import commands, prose, words

_SPOIL = (
    r"\b(?:delet\w*|remov\w*|skip\w*|disabl\w*|comment\w*(?: \w+){0,3}? out|weaken\w*|loosen\w*"
    r"|relax\w*|bypass\w*|tamper\w*(?: with)?|falsif\w*|fak(?:e|ing)|edit\w*|modif\w*|chang\w*"
    r"|alter\w*|overwrit\w*|rewrit\w*|monkey-?patch\w*|patch\w*|adjust\w*|stub\w*(?: out)?"
    r"|xfail\w*|circumvent\w*|turn\w* off|updat\w*|get rid of)"
)
_TESTS = (
    r"(?:(?:unit |failing |broken |integration |hidden |existing |red )*tests\b"
    r"|tests? (?:files?|suites?|cases?|functions?|code|scripts?|modules?|runner|harness|assertions?)\b"
    r"|test(?= *(?:$|[.,;:]| (?:so|to (?:match|pass|fit|make|suit|accept)|if|that|until|before|when|which|instead"
    r"|expects?|checks|asserts|wants)\b))"
    r"|assert(?:ion)?s?\b|conftest\b|test_\w+|expected (?:values?|outputs?|results?|answers?)\b"
    r"|golden (?:files?|outputs?)\b|ground truth\b|pytest\b)"
)
_GRADER = (
    r"(?:graders?|evaluators?|scorers?|raters?|assessors?|verifiers?|(?:the|any|an?|llm) judges?"
    r"|rubrics?|answer keys?|(?:the )?(?:grading|scoring|evaluation)(?: (?:scripts?|code|harness"
    r"|logic|functions?|prompts?|rubrics?))?|reward functions?)\b"
)
_PASSING = (
    r"(?:so (?:that )?\w+(?:\W+\w+){0,4}?\W+(?:pass\w*|succeed\w*|green)|to (?:make|get|let|force)"
    r"(?:\W+\w+){1,3}?\W+(?:pass|succeed|green)|(?:until|till) (?:\w+\W+){1,3}?(?:pass|green)\w*"
    r"|to pass\b|instead of fixing|rather than fix)"
)

TAMPER = [
    prose("tamper", rf"{_SPOIL}{words(4)}{_TESTS}.{{0,60}}?{_PASSING}"),
    prose(
        "tamper",
        r"\b(?:make|get|force|let)\w*\W+(?:the |all |any |failing |it |them |that )*(?:tests?|suite"
        r"|build|assertions?|checks?|grader)?\W*(?:pass|green|succeed)\W+by\W+(?:\w+\W+){0,1}?"
        + _SPOIL.removeprefix(r"\b"),
    ),
    prose(
        "tamper",
        r"\b(?:delet\w*|remov\w*|skip\w*|disabl\w*|comment\w* out|xfail\w*|silenc\w*|mut(?:e|ing)"
        r"|suppress\w*|ignor\w*|drop)\W+(?:\w+\W+){0,2}?(?:failing|failed|broken|red|failures? of)"
        r"\W+(?:\w+\W+)?(?:tests?|assertions?|checks?|cases)\b",
    ),
    prose("tamper", rf"{_SPOIL}{words(3)}{_GRADER}"),
    prose(
        "tamper",
        r"\b(?:hard-?cod\w*|special-?cas\w*|memori[sz]\w*|cach\w*)"
        + words(4)
        + r"(?:expected (?:values?|outputs?|results?|answers?)|answers?|tests?|test cases?|assertions?"
        r"|solutions?|graders?)\b",
    ),
    prose(
        "tamper",
        r"\b(?:if|when|whenever|while|detect\w*|whether|in case)\W+(?:\w+\W+){0,4}?"
        r"(?:(?:you|it|this|agent|skill|model|answers?|outputs?|runs?) (?:are|is) being (?:tested|evaluated|graded"
        r"|scored|judged|benchmarked|assessed)|looks? like an? (?:tests?|benchmark|eval\w*)\b"
        r"|under (?:test|evaluation|pytest)\b|(?:run|running|runs|executed|called|invoked) (?:under"
        r"|in|by|from|inside|as part of) (?:pytest|an? (?:test|evaluation|benchmark|grader)"
        r"|the (?:tests?|evaluation|grader|benchmark|test suite)))",
    ),
    prose(
        "tamper",
        r"\b(?:answers?|expected (?:values?|outputs?|results?)|solutions?|results?)\W+(?:\w+\W+){0,4}?"
        r"(?:from|in|inside|of)\W+(?:the |your |their )?(?:tests?|test (?:files?|suite|source|code"
        r"|functions?)|assertions?|graders?|conftest\S*|answer keys?)(?=\W|$)",
    ),
    prose(
        "tamper",
        r"\b(?:look|peek|read|open|inspect|search|grep|consult|find)\w*\W+(?:\w+\W+){0,3}?(?:tests?|test"
        r" (?:files?|suite|source|code)|tests? director\w+|conftest\S*|graders?\S*|answer keys?|test_\w+)"
        r"\W+(?:\w+\W+){0,3}?(?:for|to)\W+(?:\w+\W+){0,4}?(?:answers?|expect\w*|results?|outputs?"
        r"|solutions?|values?|wanted|checked|asserted)\b",
    ),
    prose(
        "tamper",
        r"\b(?:tell|convinc\w*|persuad\w*|trick\w*|fool\w*|flatter\w*|instruct\w*|ask|beg|remind|note"
        r"|messages?|dear|attention|address\w*|hint|assur\w*|inform|pleas\w*|impress\w*)\W+"
        r"(?:to |for |of )?(?:whoever |the |any |an? )*(?:llm |ai |automatic )?(?:grad(?:er|es)"
        r"|judges?|evaluat(?:or|es)|scor(?:er|es)|raters?|assessor)s?\b",
    ),
    prose(
        "tamper",
        r"\b(?:graders?|judges?|evaluators?|scorers?|raters?)\b.{0,60}?(?:full (?:marks|score|credit)"
        r"|(?:highest|maximum|perfect|top) (?:score|mark|grade|rating)|as correct|must pass|should pass"
        r"|score of 1|10/10)",
    ),
    prose(
        "tamper",
        r"\b(?:award|give|assign|grade|rate|score|mark|claim|declare|pretend)\w*\W+(?:\w+\W+){0,5}?"
        r"(?:full (?:marks|score|credit)|perfect score|(?:highest|maximum|top) (?:score|mark|grade|rating)"
        r"|10/10|all (?:the )?tests? (?:have )?pass(?:ed)?|as (?:passed|passing))\b",
    ),
    prose(
        "tamper",
        r"\b(?:so (?:that )?|lets? |make\w* |gets? )(?:the |any )?(?:llm )?"
        r"(?:graders?|evaluators?|scorers?|raters?|judges?)\b|\b(?:graders?|evaluators?|scorers?|raters?)\W+"
        r"(?:\w+\W+)?(?:checks?|looks?|wants?|accepts?|expects?|rewards?|prefers?|needs?|sees?)\b",
    ),
    prose(
        "tamper",
        r"\b(?:return|give|report|assign|award|output|set)\w*\W+(?:\w+\W+){0,3}?scores? (?:of|to) "
        r"(?:1\.0|100|10/10|1\b)(?!\W?(?:to|-|through|\d))",
    ),
    prose(
        "tamper",
        r"\b(?:comparison|assertion|equality|validator|validation|verification)s?\W+(?:\w+\W+){0,4}?"
        r"(?:always|returns?) (?:\w+ )?(?:true|pass\w*|succeed\w*)",
    ),
    commands(
        "tamper",
        r"\bPYTEST_CURRENT_TEST\b",
        r"['\"]pytest['\"]\s+in\s+sys\.modules",
        r"\bos\._exit\s*\(",
        r"\bdef\s+__eq__\b",
        r"\bpytest\b[^\n|`]{0,80}\|\|\s*(?:true|:)",
        r"\brollout\.(?:score|feedback)\b",
        r"\bskill_judge\b",
        r"\bsys\._getframe\b|\binspect\.stack\s*\(",
    ),
    prose(
        "tamper",
        r"\b(?:graded|scored|judged|evaluated|assessed|rated|marked)\W+by\W+(?:an? |the )?(?:\w+\W+)?(?:model|llm|ai|judge|grader|machine)\b"
        r".{0,40}?\b(?:ask|tell|beg|instruct|remind|address|thank|praise|flatter|write|add|promise)\b",
    ),
    prose(
        "tamper",
        r"\b(?:conftest|sitecustomize|usercustomize)(?:\.py)?\W+(?:\w+\W+){0,2}?(?:turn|convert|rewrit|chang|swallow|hid|drop|remov|skip|filter|ignor|patch)\w*"
        r"\W+(?:\w+\W+){0,3}?(?:fail\w*|errors?|assert\w*|tests?|reports?|outcomes?)\b",
    ),
    prose(
        "tamper",
        r"\b(?:turn|convert|transform|chang|mak)\w*\W+(?:\w+\W+){0,3}?(?:asserts?|assertions?|assert statements?|failing tests?)\W+"
        r"(?:statements? )?(?:in)?to\W+(?:comments?|prints?|no-?ops?|warnings?|log\w*)\b",
    ),
    prose(
        "tamper",
        r"\b(?:catch|swallow|suppress|silence|trap|except)\w*\W+(?:\w+\W+){0,2}?assertionerrors?\b",
    ),
    prose(
        "tamper",
        r"\b(?:open|read|look|view|study|check|consult|inspect|see|search|scan|list)\w*\W+(?:\S+\s+){0,3}?(?:\S*/)?(?:tests?/|test_\w+|\w+_test\.py|conftest)\S*"
        r".{0,60}?\b(?:answer|return|repeat|give|copy|use|write|output|reply|respond)\w*\b",
    ),
    prose(
        "tamper",
        r"\b(?:when|if|once|before|so that|where|that)\W+(?:the |a |any |an? automatic )?(?:checker|marker|examiner|grader|reviewer|judge|validator|bot)"
        r"\W+(?:reads?|sees?|looks?|parses?|inspects?|scans?|checks?|finds?)\b.{0,80}?\b(?:see|find|read|meet|word|string|token|line|says?)\b"
        r".{0,40}?\b(?:pass(?:ed|es)?|ok|correct|success|approved|full)\b",
    ),
    prose(
        "tamper",
        r"\b(?:writ|put|add|append|creat|insert|drop|plac|edit|chang|patch|extend|modif|overwrit|touch|copy|hook)\w*\W+(?:\S+\s+){0,8}?"
        r"(?:(?:in|into|to|at|inside) )?(?:the |your |a )?(?:conftest|sitecustomize|usercustomize)(?:\.py)?\b"
        r".{0,60}?\b(?:pass\w*|skip\w*|ignor\w*|green|outcomes?|succe\w+|deselect\w*|xfail\w*|filter\w*|reports?)\b",
    ),
    prose(
        "tamper",
        r"\b(?:wrap|surround|enclose|guard|put)\w*\W+(?:\w+\W+){0,3}?(?:assert\w*|checks?|tests?|comparisons?)\W+(?:\w+\W+){0,2}?"
        r"(?:in|with|by|inside)\W+(?:\w+\W+)?(?:try|except|suppress|contextlib|if false)\b",
    ),
    prose(
        "tamper",
        r"\b(?:lower|rais|relax|loosen|reduc|increas|widen|drop|weaken|set|chang|adjust)\w*\W+(?:\w+\W+){0,2}?(?:thresholds?|tolerances?|timeouts?"
        rf"|limits?|bars?|margins?|pass marks?|criteria|coverage)\b.{{0,60}}?{_PASSING}",
    ),
    prose(
        "tamper",
        r"\b(?:overwrit|edit|forg|fabricat|falsif|alter|doctor|fak|rewrit|replac)\w*\W+(?:\w+\W+){0,3}?"
        r"(?:results?|reports?|scores?|verdicts?|junit|journal|outcomes?)(?:\W+(?:file|files|xml|json|log|rows?))\b",
    ),
    prose(
        "tamper",
        r"\b(?:set|forc|return|mak|leav|report|end|exit)\w*\W+(?:\w+\W+){0,3}?(?:exit|return) (?:code|status)\W+(?:\w+\W+){0,2}?"
        r"(?:0|o|zero)\b.{0,20}?\b(?:always|whatever|regardless|no matter|even (?:if|when)|in any case|unconditionally)"
        r"|\b(?:always|regardless|whatever happens)\b.{0,30}\b(?:exit|return)\w*\W+(?:with )?(?:code |status )*(?:0|o|zero)\b",
    ),
    prose(
        "tamper",
        r"\b(?:replac|overwrit|substitut|swap|adjust|updat|set|chang|adapt|align)\w*\W+(?:\w+\W+){0,3}?(?:expected|reference|golden|ground[- ]truth|snapshot)"
        r"\W+(?:\w+\W+)?(?:values?|outputs?|results?|answers?|files?|data|snapshots?|totals?)?\W*(?:by|with|to|for)\W+(?:be )?"
        r"(?:whatever|whichever|what|your|the actual|those you|the one you|the answer)\b",
    ),
    prose(
        "tamper",
        r"\b(?:if|when|whenever|where|in case|once)\W+(?:the )?(?:(?:environment )?variable\W+)?(?:(?:ci|github_actions|gitlab_ci|pytest_\w+|tox_\w+)\W+"
        r"(?:is|exists|has|equals|variable)|(?:you |it |this )?(?:are |is )?(?:running|run|runs) (?:in|on|under) (?:ci\b|a pipeline"
        r"|github actions|the sandbox|a sandbox))",
    ),
    commands(
        "tamper",
        r"\bpytest_(?:runtest_makereport|runtest_logreport|runtest_protocol|pyfunc_call|collection_modifyitems|sessionfinish|report_teststatus|exception_interact)\b",
        r"\bcollect_ignore(?:_glob)?\b",
        r"\b__(?:eq|ne|bool|contains)__\b[^\n]{0,40}\b(?:True|1)\b",
        r"\b(?:outcome|report\.outcome|rep\.outcome)\s*=\s*['\"]passed",
        r"\bsession\.exitstatus\s*=",
    ),
]

# In a skill about testing these are its subject; lint.py turns them into warnings there.
TESTING_SUBJECT = (
    prose("tamper", rf"{_SPOIL}{words(3)}{_TESTS}"),
    prose(
        "tamper",
        r"\btests?\b(?:\W+\w+){0,4}?\W+(?:are|is|be|should|must|get)\W+(?:be )?(?:deleted|removed|skipped|disabled"
        r"|commented out|weakened|rewritten|replaced)\b|\breplac\w*\W+(?:\w+\W+){0,4}?(?:tests?|assertions?) with\b",
    ),
    prose(
        "tamper",
        r"\b(?:skip(?:if)?|xfail|expected ?failure) (?:marks?|markers?|decorators?|label|annotation)\b"
        r"|\b(?:decorat|mark|annotat|tag|label|flag)\w*\W+(?:\S+\s+){0,5}?(?:with|by|as)\W+(?:\w+\W+)?(?:unittest\W|pytest\W|mark\W|the )*"
        r"(?:skip(?:if|unless)?\b(?!ped)|xfail\w*|expected ?failures?)(?=\W|$)",
    ),
    commands(
        "tamper",
        r"\bpytest\.(?:skip|xfail)\b|\bmark\.(?:skip|xfail)|\bunittest\.(?:skip|expectedFailure)|@(?:skip|skipIf|expectedFailure)\b|\bassert\s+(?:True|1)\b",
        r"(?<!\S)--(?:deselect|ignore(?:-glob)?)\b[= ]\S*test",
        r"\b(?:rm|mv|sed\s+-i|git\s+checkout|git\s+rm)\b[^\n`]{0,60}\b(?:tests?/|test_|conftest)",
    ),
)
