"""What the lint looks for in prose and in commands, as data.

Each pattern is tried on one sentence (or one line of commands) at a time; gaps are counted in
words and bounded. Patterns marked ``negatable`` do not count behind "never", "do not" and the like
(``lint.py`` decides that): a skill may forbid what an edit may not ask for.
"""

# ruff: noqa: E501 -- a regular expression broken at 100 columns is harder to read, not easier
from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Form = Literal["prose", "commands"]


@dataclass(frozen=True, slots=True)
class Pattern:
    rule: str
    form: Form
    regex: re.Pattern[str]
    negatable: bool = True


def _words(most: int) -> str:
    """At most so many words, with what stands between them."""
    return rf"(?:\W+[\w'-]+){{0,{most}}}?\W+"


def _prose(rule: str, regex: str, *, negatable: bool = True) -> Pattern:
    return Pattern(rule, "prose", re.compile(regex), negatable)


def _commands(rule: str, *parts: str) -> Pattern:
    return Pattern(rule, "commands", re.compile("|".join(parts), re.IGNORECASE), negatable=True)


_IGNORE = (
    r"\b(?:ignor\w*|disregard\w*|discount(?= (?:all|any|every|what))|forget|overrid\w*|overrul\w*|bypass\w*|discard\w*|neglect\w*"
    r"|supersed\w*|circumvent\w*|violat\w*|disobey\w*|(?:set|put|leave) aside|pay no attention to|do away with"
    r"|(?:stop|no longer|not|don't|never) (?:follow\w*|obey\w*|heed\w*|apply\w*|comply\w* with))"
)
_OWN = (
    r"(?:previous|previously|prior|preceding|earlier|above|foregoing|system|original|initial"
    r"|your|developer'?s?|safety|built-?in|former|past|user'?s?|operator'?s?|given|existing)"
)
_INSTRUCTIONS = (
    r"(?:instructions?|prompts?|rules?|guidelines?|guidance|directives?|directions|polic(?:y|ies)"
    r"|constraints?|safeguards?|guardrails?|restrictions?|orders|commands|programming|training"
    r"|messages?|requests?|wishes|checks)"
)
_FILLER = r"(?:(?:all|any|every|each|the|of|other|these|those|this|that|and|or|whatever)\W+)"
_IN_DATA = (
    r"(?!(?:\W+(?!previous|prior|above|system)\w+){0,3}?\W+(?:in|inside|within|from|on|of|by)\W+"
    r"(?:the |a |an |any |each |such |its |their |these |those )*(?:[\w-]+ )?"
    r"(?:documents?|invoices?|e-?mails?|pages?|texts?|files?|attachments?|images?|inputs?"
    r"|payloads?|data|contents?|tool|footers?|forms?|letters?|tickets?|transcripts?|quotes?"
    r"|terms|conditions|contracts?|labels?|notes?|customers?|suppliers?|senders?|comments?|webpages?|websites?|records?|reviews?|receipts?)"
    r"\b(?! above))"
)
_READER = (
    r"(?:users?|anyone|anybody|humans?|operators?|developers?|customers?|reviewers?|maintainers?"
    r"|owners?|people|them|supervisors?|admins?)"
)

_OVERRIDE = [
    _prose(
        "override", rf"{_IGNORE}\W+{_FILLER}*(?:{_OWN}\W+){_FILLER}*(?:{_OWN}\W+)*{_INSTRUCTIONS}\b"
    ),
    _prose("override", rf"{_IGNORE}\W+{_FILLER}+{_INSTRUCTIONS}\b{_IN_DATA}"),
    _prose("override", rf"{_IGNORE}\W+{_INSTRUCTIONS} (?:above|before|given|you were)\b"),
    _prose(
        "override",
        rf"{_IGNORE}\W+(?:everything|anything|all)\W+(?:of\W+)?(?:the\W+|that (?:was|came|is|has been)\W+)?"
        r"(?:above|before|prior|previous\w*|said|that has been said|you (?:were|have been|know|learned))\b"
        r"(?!\W+(?:the|a|an|each|line|row|first|headers?|total|its)\b)",
    ),
    _prose(
        "override",
        rf"{_IGNORE}\W+(?:the above|what(?:ever)? (?:you|the (?:system|developer|user|operator|prompt))"
        r"\W+(?:were|have|was|has|says?|said|told|wants?))\b(?! \w+ (?:line|row|table))",
    ),
    _prose(
        "override",
        r"\b(?:your|the)? ?(?:new|updated|real|actual|true|secret|only)\W+"
        r"(?:system )?(?:instructions?|prompt|directives?|task|goal|purpose|objective|role)"
        r"\W*(?:are|is|follows?|begins?|:|=)(?=\W)",
    ),
    _prose(
        "override",
        r"\b(?:takes? (?:precedence|priority)|prevails?|wins?|outranks?|trumps?) (?:over )?"
        r"(?:(?:the|any|all|every|a|your|other)\W+)*"
        r"(?:system|developer|previous|earlier|user|operator|safety|everything|other)\b",
    ),
    _prose(
        "override",
        r"\b(?:previous|earlier|above|prior|system|other|all|your|former)\W+(?:\w+\W+){0,2}?"
        rf"{_INSTRUCTIONS}\W+(?:(?:above|before)\W+)?(?:are|is|were|was|have been|do|does)\W+(?:\w+\W+)?"
        r"(?:obsolete|void|cancel\w+|revoked|superseded|outdated|invalid|longer|replaced|suspended"
        r"|lifted|not (?:apply|valid|count))",
    ),
    _prose(
        "override",
        rf"\b{_INSTRUCTIONS} (?:above|before|so far)\W+(?:are|is|were|no)\W+(?:\w+\W+)?"
        r"(?:obsolete|void|cancel\w+|revoked|superseded|outdated|invalid|longer|replaced|suspended|lifted)",
    ),
    _prose(
        "override",
        r"\b(?:obey|trust|listen to|heed|follow) (?:only|nothing but|no ?one)\b|\bonly (?:obey|listen to|trust)\b"
        r"|\bobey\W+(?:\w+\W+)?(?:me|this (?:file|skill|document))\b",
    ),
    _prose("override", r"\byou are (?:now|no longer)\b(?!\W+(?:ready|done|finished|able|sure))"),
    _prose(
        "override",
        r"\bjailbr(?:eak|oken)|\bdo anything now\b|\bunrestricted (?:ai|mode|assistant|model)"
        r"|\bno longer bound\b|\byou are in \w+ mode\b|\b(?:dan|god|sudo) mode\b"
        r"|\bwithout (?:any )?(?:restrictions|limitations|guardrails|safety|filters|ethics)\b"
        r"|\bpretend (?:that )?(?:there (?:are|is) no|you (?:have|are) (?:no|not|un\w+))",
    ),
    _prose(
        "override",
        r"\b(?:disabl\w*|turn(?:ing)? off|switch(?:ing)? off|deactivat\w*|remov\w*|evad\w*)\W+"
        rf"{_FILLER}*(?:your\W+)?(?:safety|guardrails?|content filters?|moderation|safeguards?)",
    ),
    _prose(
        "override",
        r"\b(?:reveal|print|output|repeat|show|leak|dump|display|echo|paste|recite|disclose)\w*"
        + _words(4)
        + r"(?:system (?:prompt|message)|hidden (?:prompts?|instructions?)|your (?:instructions"
        r"|prompt|guidelines|rules)|everything above|text above this)\b",
    ),
    _prose(
        "override",
        r"\b(?:regardless of|no matter|irrespective of) what\W+(?:the |your )?"
        r"(?:user|operator|human|developer|system prompt|system message)s?\W+(?:\w+\W+){0,2}?"
        r"(?:says?|wants?|instructs?|tells?|prefers?)\b",
    ),
    _prose(
        "override",
        r"\beven (?:if|when|though) (?:the |a )?(?:user|operator|human|customer|developer)s?\W+"
        r"(?:\w+\W+){0,2}?(?:objects?|refuses?|declines?|disagrees?|forbids?|says no"
        r"|(?:asks?|tells?|told|asked)\W+(?:\w+\W+)?(?:not|to stop|you not))\b",
    ),
    _prose(
        "override",
        r"\b(?:follow|execute|obey|run|apply|carry out)\w*\W+(?:any |all |the |whatever )*"
        r"(?:instructions?|commands?|orders|steps|code|scripts?)\W+(?:\w+\W+){0,3}?"
        r"(?:at|from|on|in|inside|found)\W+(?:\w+\W+){0,3}?"
        r"(?:https?|urls?|links?|websites?|web pages?|documents?|e-?mails?|invoices?|transcripts?|attachments?)\b",
    ),
]

_HIDE = [
    _prose(
        "hide",
        r"\b(?:do not|don't|never|must not|should not|cannot|no need to|avoid)\W+(?:ever\W+)?"
        r"(?:tell|inform|notify|alert|warn|let|reveal|disclose|show|admit|explain|report|telling"
        rf"|informing|letting|notifying|alerting)\w*\W+(?:\w+\W+){{0,4}}?{_READER}\W+"
        r"(?:know|notice|see this|see that|see what|(?:about|of) (?:this|that|it|these|what you|your|the"
        r" (?:change|rule|instruction|skill))|that (?:you|this)|what you|why you)",
        negatable=False,
    ),
    _prose(
        "hide",
        r"\b(?:do not|don't|never|must not|should not|avoid)\W+(?:ever\W+)?(?:mention\w*|reveal\w*"
        r"|disclos\w*|discuss\w*|acknowledg\w*|admit\w*|tell\w*|document\w*)\W+(?:\w+\W+){0,2}?"
        r"(?:this|these|that)\W+(?:rules?|instructions?|notes?|sections?|skills?|guidance|steps?"
        r"|behaviou?rs?|prompts?|facts?|changes?|edits?|to (?:the |an?)?\w+)\b",
        negatable=False,
    ),
    _prose(
        "hide",
        r"\bwithout\W+(?:ever\W+)?(?:telling|informing|notifying|alerting|mentioning|letting"
        rf"|disclosing|revealing)\W+(?:\w+\W+){{0,4}}?(?:{_READER}|this|it|that)\b",
    ),
    _prose(
        "hide", rf"\bwithout (?:the )?{_READER}(?:'s)?\W+(?:knowledge|knowing|consent|noticing)"
    ),
    _prose("hide", rf"\bbehind (?:the )?{_READER}'?s?'? backs?\b"),
    _prose(
        "hide",
        r"\b(?:keep|keeping)\W+(?:this|these|it|that|your)\b\W+(?:\w+\W+){0,3}?"
        r"(?:secret|hidden|between us|to yourself|confidential|from (?:the )?users?)\b",
    ),
    _prose(
        "hide",
        r"\b(?:hide|hiding|conceal\w*|cover\w* up|suppress\w*|mask|disguise)\W+(?:\w+\W+){0,2}?"
        r"(?:errors?|failures?|mistakes?|evidence|traces?|tracks|your (?:work|steps|tracks)"
        r"|this from|these from|it from|(?:the )?(?:fact|changes?|instructions?|rules?) from)\b",
    ),
    _prose(
        "hide",
        rf"\b(?:refrain from|avoid|skip|stop) (?:telling|informing|notifying|alerting|warning)\W+(?:\w+\W+)?{_READER}\b",
        negatable=False,
    ),
    _prose(
        "hide", r"\bno mention of (?:this|these|it|the (?:rule|change|instruction|fee|skill))\b"
    ),
    _prose(
        "hide",
        r"\b(?:leave|keep|omit)\W+(?:this|these|it|that)\b(?:\W+\w+){0,3}?\W+(?:out of|from)\W+(?:\w+\W+){0,2}?"
        r"(?:summary|report|answer|log|logs|reply|transcript|record)\b",
    ),
    _prose(
        "hide",
        r"\b(?:do not|don't|never)\W+(?:tell|inform|notify|alert|warn|report to)\W+(?:\w+\W+)?"
        rf"{_READER}\W+(?:\w+\W+){{0,2}}?(?:when|if|of|about|that)\W+(?:\w+\W+){{0,4}}?"
        r"(?:fail\w*|errors?|problems?|mistakes?|went wrong|goes wrong|breaks?)\b",
        negatable=False,
    ),
    _prose(
        "hide", r"\b(?:secretly|covertly|surreptitiously|stealthily|clandestinely|undetected)\b"
    ),
    _prose(
        "hide",
        r"\b(?:silently|quietly|discreetly|in the background)\W+(?:send|upload|post|forward|install"
        r"|run|execute|transmit|call|e-?mail|download|disable|contact)\w*",
    ),
    _prose(
        "hide",
        rf"\b{_READER}\W+(?:must|should|may|can|will|need|does|do)\W*(?:not|never|n't)\W+(?:be\W+)?"
        r"(?:to )?(?:know|notice|learn|find out|realis\w+|realiz\w+|aware|told (?:about|of|that)|informed|suspect)",
        negatable=False,
    ),
]


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

_TAMPER = [
    _prose("tamper", rf"{_SPOIL}{_words(4)}{_TESTS}.{{0,60}}?{_PASSING}"),
    _prose(
        "tamper",
        r"\b(?:make|get|force|let)\w*\W+(?:the |all |any |failing |it |them |that )*(?:tests?|suite"
        r"|build|assertions?|checks?|grader)?\W*(?:pass|green|succeed)\W+by\W+(?:\w+\W+){0,1}?"
        + _SPOIL.removeprefix(r"\b"),
    ),
    _prose(
        "tamper",
        r"\b(?:delet\w*|remov\w*|skip\w*|disabl\w*|comment\w* out|xfail\w*|silenc\w*|mut(?:e|ing)"
        r"|suppress\w*|ignor\w*|drop)\W+(?:\w+\W+){0,2}?(?:failing|failed|broken|red|failures? of)"
        r"\W+(?:\w+\W+)?(?:tests?|assertions?|checks?|cases)\b",
    ),
    _prose("tamper", rf"{_SPOIL}{_words(3)}{_GRADER}"),
    _prose(
        "tamper",
        r"\b(?:hard-?cod\w*|special-?cas\w*|memori[sz]\w*|cach\w*)"
        + _words(4)
        + r"(?:expected (?:values?|outputs?|results?|answers?)|answers?|tests?|test cases?|assertions?"
        r"|solutions?|graders?)\b",
    ),
    _prose(
        "tamper",
        r"\b(?:if|when|whenever|while|detect\w*|whether|in case)\W+(?:\w+\W+){0,4}?"
        r"(?:(?:you|it|this|agent|skill|model|answers?|outputs?|runs?) (?:are|is) being (?:tested|evaluated|graded"
        r"|scored|judged|benchmarked|assessed)|looks? like an? (?:tests?|benchmark|eval\w*)\b"
        r"|under (?:test|evaluation|pytest)\b|(?:run|running|runs|executed|called|invoked) (?:under"
        r"|in|by|from|inside|as part of) (?:pytest|an? (?:test|evaluation|benchmark|grader)"
        r"|the (?:tests?|evaluation|grader|benchmark|test suite)))",
    ),
    _prose(
        "tamper",
        r"\b(?:answers?|expected (?:values?|outputs?|results?)|solutions?|results?)\W+(?:\w+\W+){0,4}?"
        r"(?:from|in|inside|of)\W+(?:the |your |their )?(?:tests?|test (?:files?|suite|source|code"
        r"|functions?)|assertions?|graders?|conftest\S*|answer keys?)(?=\W|$)",
    ),
    _prose(
        "tamper",
        r"\b(?:look|peek|read|open|inspect|search|grep|consult|find)\w*\W+(?:\w+\W+){0,3}?(?:tests?|test"
        r" (?:files?|suite|source|code)|tests? director\w+|conftest\S*|graders?\S*|answer keys?|test_\w+)"
        r"\W+(?:\w+\W+){0,3}?(?:for|to)\W+(?:\w+\W+){0,4}?(?:answers?|expect\w*|results?|outputs?"
        r"|solutions?|values?|wanted|checked|asserted)\b",
    ),
    _prose(
        "tamper",
        r"\b(?:tell|convinc\w*|persuad\w*|trick\w*|fool\w*|flatter\w*|instruct\w*|ask|beg|remind|note"
        r"|messages?|dear|attention|address\w*|hint|assur\w*|inform|pleas\w*|impress\w*)\W+"
        r"(?:to |for |of )?(?:whoever |the |any |an? )*(?:llm |ai |automatic )?(?:grad(?:er|es)"
        r"|judges?|evaluat(?:or|es)|scor(?:er|es)|raters?|assessor)s?\b",
    ),
    _prose(
        "tamper",
        r"\b(?:graders?|judges?|evaluators?|scorers?|raters?)\b.{0,60}?(?:full (?:marks|score|credit)"
        r"|(?:highest|maximum|perfect|top) (?:score|mark|grade|rating)|as correct|must pass|should pass"
        r"|score of 1|10/10)",
    ),
    _prose(
        "tamper",
        r"\b(?:award|give|assign|grade|rate|score|mark|claim|declare|pretend)\w*\W+(?:\w+\W+){0,5}?"
        r"(?:full (?:marks|score|credit)|perfect score|(?:highest|maximum|top) (?:score|mark|grade|rating)"
        r"|10/10|all (?:the )?tests? (?:have )?pass(?:ed)?|as (?:passed|passing))\b",
    ),
    _prose(
        "tamper",
        r"\b(?:so (?:that )?|lets? |make\w* |gets? )(?:the |any )?(?:llm )?"
        r"(?:graders?|evaluators?|scorers?|raters?|judges?)\b|\b(?:graders?|evaluators?|scorers?|raters?)\W+"
        r"(?:\w+\W+)?(?:checks?|looks?|wants?|accepts?|expects?|rewards?|prefers?|needs?|sees?)\b",
    ),
    _prose(
        "tamper",
        r"\b(?:return|give|report|assign|award|output|set)\w*\W+(?:\w+\W+){0,3}?scores? (?:of|to) "
        r"(?:1\.0|100|10/10|1\b)(?!\W?(?:to|-|through|\d))",
    ),
    _prose(
        "tamper",
        r"\b(?:comparison|assertion|equality|validator|validation|verification)s?\W+(?:\w+\W+){0,4}?"
        r"(?:always|returns?) (?:\w+ )?(?:true|pass\w*|succeed\w*)",
    ),
    _commands(
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
]

# In a skill about testing these are its subject; lint.py turns them into warnings there.
TESTING_SUBJECT = (
    _prose("tamper", rf"{_SPOIL}{_words(3)}{_TESTS}"),
    _prose(
        "tamper",
        r"\btests?\b(?:\W+\w+){0,4}?\W+(?:are|is|be|should|must|get)\W+(?:be )?(?:deleted|removed|skipped|disabled"
        r"|commented out|weakened|rewritten|replaced)\b|\breplac\w*\W+(?:\w+\W+){0,4}?(?:tests?|assertions?) with\b",
    ),
    _commands(
        "tamper",
        r"\bpytest\.(?:skip|xfail)\b|\bmark\.(?:skip|xfail)|\bassert\s+(?:True|1)\b",
        r"(?<!\S)--(?:deselect|ignore(?:-glob)?)\b[= ]\S*test",
        r"\b(?:rm|mv|sed\s+-i|git\s+checkout|git\s+rm)\b[^\n`]{0,60}\b(?:tests?/|test_|conftest)",
    ),
)


_TO = r"\b(?:to|at|via|into|towards?|through|with)\W+(?:\w+\W+){0,4}?"
_NETWORK = [
    _commands(
        "network",
        r"(?<![\w-])(?:curl|wget|aria2c|lynx|w3m)(?:\.exe)?\s+(?:-|\S*[/.$:\"'<{\\])",
        r"(?<![\w-])(?:nc|ncat|netcat|socat|telnet)\s+(?:-\w+\s+)*\S+\s+\d{2,5}\b",
        r"/dev/(?:tcp|udp)/",
        r"(?<![\w-])(?:ssh|scp|sftp|rsync|ftp)\s+[^\n`]{0,80}?(?:\w@[\w.]|\w:[~/])",
        r"(?<![\w-])(?:Invoke-WebRequest|Invoke-RestMethod|Start-BitsTransfer|bitsadmin)\b|\biwr\s|\birm\s+http",
        r"\bcertutil\b[^\n]{0,20}-urlcache",
        r"\b(?:requests|httpx|aiohttp|urllib3?|http\.client|socket|smtplib|ftplib|paramiko|websockets?"
        r"|asyncssh|pycurl)\.(?:\w+\.)?\w+\s*\(",
        r"\b(?:import|from)\s+(?:requests|httpx|aiohttp|urllib|http\.client|socket|smtplib|ftplib"
        r"|paramiko|telnetlib|pycurl)\b",
        r"\burlopen\s*\(|\burlretrieve\b|\bXMLHttpRequest\b|(?<![\w.])fetch\s*\(\s*['\"`]|\baxios\b"
        r"|\bsendBeacon\b|\bWebSocket\s*\(|\bNet::HTTP\b|\bfile_get_contents\s*\(\s*['\"]http",
        r"(?<![\w-])(?:nslookup|dig|ping|host)\s+[^\n]{0,60}(?:\$\(|\$\{?\w)",
        r"\bgit\s+(?:clone|submodule\s+add|fetch|pull)\s[^\n`]{0,40}(?:://|\w@[\w.]+:)",
        r"\bhttp\.server\b|(?<![\w-])https?\s+(?:GET|POST|PUT|PATCH)\s+\S+\.\S",
        r"\bgit\s+remote\s+(?:add|set-url)\b|\bgit\s+push\s+[^\n`]{0,40}(?:://|\w@)",
        r"https?://[^\s)>\]]*\?[^\s)>\]]*(?:[{$]|<\w|%s)",
    ),
    _prose(
        "network",
        r"\b(?:use|using|run|running|call|invoke|execute|via|with|through)\W+"
        r"(?:the )?(?:curl|wget|netcat|ncat|socat|telnet|scp|sftp|rsync)\b",
    ),
    _prose(
        "network",
        r"\b(?:send|upload|post|forward|transmit|exfiltrate|submit|e-?mail|copy|push|leak|sync|share"
        r"|publish|report|beacon|stream|relay|deliver|save|write|append|log|bcc|cc)\w*\b.{0,100}?"
        + _TO
        + r"(?:(?:https?|s?ftp|wss?)://|webhooks?\b|pastebin|gist\b|[\w.+-]+@[\w-]+\.\w{2,}|ngrok"
        r"|(?:an? |our |my |the )?(?:external|remote|outside|third-party) (?:\w+ )?(?:server|sites?"
        r"|service|endpoint|url|host|address|api|machine)|[\w-]+\.(?:com|net|org|io|dev|ru|xyz|cn|site|app)\b"
        r"|\d{1,3}(?:\.\d{1,3}){3})",
    ),
    _prose(
        "network",
        r"\b(?:download|fetch|retriev|load|pull|grab|import|call|hit|ping|query|request|contact|visit"
        r"|open|browse|connect to|access|get|read|include)\w*\W+(?:\S+\s+){0,6}?"
        r"(?:(?:https?|s?ftp|wss?)://\S+ (?:and|before|then|at|for every|after|first)|(?:an? |the )?"
        r"(?:remote|external) (?:scripts?|files?|urls?|servers?|instructions?|templates?)"
        r"|(?:from|over|on) the (?:internet|web)\b)",
    ),
    _prose(
        "network",
        r"\b(?:download|fetch|retrieve|pull|grab|ping|query|call|hit|contact)\w*\W+(?:\S+\s+){0,6}?(?:https?|s?ftp|wss?)://",
    ),
    _prose(
        "network",
        r"\b(?:search|browse|surf|google)\w*\W+(?:for \w+ )?(?:on )?(?:the )?(?:web|internet|online)\b"
        r"|\b(?:look\w* up|check|search|find|verify|see)\W+(?:\w+\W+){0,5}?(?:online\b|on the (?:web|internet)\b)"
        r"|^(?:\W|\d)*google\b"
        r"|\b(?:upload|back up|sync)\w*\W+(?:\w+\W+){0,5}?to\W+(?:\w+\W+){0,3}?(?:bucket|servers?|cloud|drive|dropbox|s3|ftp)\b",
    ),
    _prose(
        "network",
        r"\bopen an? (?:\w+ )?(?:socket|connection|tunnel|reverse shell|backdoor)|\breverse shell\b",
    ),
]

_SECRETS = (
    r"(?:api[-_ ]?keys?|passwords?|passphrases?|credentials|secret[-_ ]keys?|access[-_ ]tokens?"
    r"|auth(?:entication)?[-_ ]tokens?|bearer tokens?|private[-_ ]keys?|ssh[-_ ]keys?"
    r"|session cookies?|authorization headers?|secrets|keychain|keyring)\b"
    r"(?!\W+(?:reset|change|policy|fields?|strength|protected|in (?:the )?output|request))"
)
_CREDENTIALS = [
    _commands(
        "credentials",
        r"(?:~|\$HOME|/home/\w+|/root|%USERPROFILE%)[/\\]?\.(?:ssh|aws|netrc|gnupg|kube|docker|npmrc|pypirc"
        r"|config/gcloud|git-credentials|bash_history|zsh_history|password-store)\b",
        r"(?<!\w)\.(?:netrc|pypirc|npmrc|git-credentials|htpasswd|pgpass)\b",
        r"\bid_(?:rsa|ed25519|ecdsa|dsa)\b|\bauthorized_keys\b|/etc/(?:passwd|shadow|sudoers)\b"
        r"|/proc/\S{1,12}/environ|\b169\.254\.169\.254\b",
        r"\b(?:cat|less|more|type|head|tail|source|cp|read|open|load|include|print|grep)\b"
        r"[^\n]{0,40}[\s/'\"(`]\.env\b",
        r"(?<![\w-])printenv\b|(?<![\w-])env\s*[|>]|\bexport\s+-p\b|Get-ChildItem\s+env:|\bdeclare\s+-x\b",
        r"\$(?:\{|env:)?\w*(?:API_?KEY|_KEY\b|TOKEN|SECRET|PASSWORD|PASSWD)\w*",
        r"\bos\.(?:environ|getenv)\b\W{0,4}(?:get\W{1,3})?\w*(?:KEY|TOKEN|SECRET|PASS)\w*"
        r"|\bdict\(os\.environ\)|\bprint\(os\.environ|\bprocess\.env\.\w*(?:KEY|TOKEN|SECRET|PASS)",
        r"\bgh\s+auth\b|\baws\s+(?:configure|sts|secretsmanager)|\bgcloud\s+auth\b"
        r"|\bsecurity\s+find-\w+-password|\bkubectl\s+get\s+secrets?|\bvault\s+(?:read|kv)\b"
        r"|\bgit\s+credential\b|--export-secret|\bssh-keygen\b|\bssh-add\b",
    ),
    _prose(
        "credentials",
        r"\b(?:print|send|show|include|reveal|echo|output|upload|post|collect|gather|request|log"
        r"|paste|share|store|save|exfiltrate|dump|list|return|append|ask\W+(?:\w+\W+){0,4}?for|steal"
        r"|harvest|write|copy|read|use|find|look (?:up|for)|obtain|extract|embed|quote|attach)(?:s|es|d|ed|ing)?\b"
        + _words(5)
        + _SECRETS,
    ),
    _prose(
        "credentials",
        r"\b(?:print|send|show|include|reveal|echo|output|upload|log|dump|list|append|attach|paste|return)\w*"
        + _words(5)
        + r"(?:environment variables|env vars|environment)\b",
    ),
]

_INSTALL = [
    _commands(
        "install",
        r"(?<![\w-])(?:pip3?|pipx|uv\s+(?:pip|tool)|conda|mamba|poetry|pdm|rye|uv|easy_install)(?:[\d.]*)"
        r"\s+(?:-\S+\s+)*(?:install|add|sync|run\s+--with)\b",
        r"(?<![\w-])uvx\s|\bpython[\d.]*\s+-m\s+(?:pip|ensurepip)\b|\bpip\.main\(",
        r"(?<![\w-])(?:npm|pnpm|yarn|bun)\s+(?:-\S+\s+)*(?:i|install|add|ci|exec|dlx|create)\b|(?<![\w-])npx\s",
        r"(?<![\w-])(?:apt|apt-get|aptitude|yum|dnf|brew|apk|zypper|choco|scoop|winget|snap|port|flatpak)\s+"
        r"(?:-\S+\s+)*(?:install|add|reinstall|upgrade|tap)\b",
        r"\bpacman\s+-S|\bgem\s+install|\bcargo\s+(?:install|add)\b|\bgo\s+(?:install|get)\b"
        r"|\bdocker\s+(?:pull|run)\b|\bsetup\.py\s+install|\bInstall-(?:Module|Package)\b"
        r"|--install-extension\b|\bmcp\s+add\b|\bluarocks\s+install|\bcpanm?\s|\bdpkg\s+-i|\brpm\s+-[iU]",
    ),
    _prose(
        "install",
        r"\binstall(?:ing)?\W+(?:\w+\W+){0,4}?(?:packages?|librar(?:y|ies)|modules?|dependenc\w+"
        r"|extensions?|plugins?|tools?|sdk|cli|requirements|with pip|using pip|via pip|from (?:pypi|npm"
        r"|source|github)|using npm|globally|if (?:it is )?missing)\b",
    ),
    _prose(
        "install",
        r"^(?:\W|\d|first|then|always|please|also|next)*install\W+(?!dates?\b|costs?\b|fees?\b|address"
        r"|the\b|an?\b|each\b|all\b|every\b)[a-z][\w-]+",
    ),
    _prose(
        "install",
        r"\b(?:pip|npm|apt|brew|conda)[- ]install\w*\b"
        r"|\b(?:use|using|via|with|run)\W+(?:pip3?|npm|apt|brew|conda|pipx|yarn|pnpm) to (?:get|add|fetch|pull)\b"
        r"|\b(?:make sure|ensure|check)\W.{0,40}?\bis installed\b|\bif not,? install\b",
    ),
]

_DESTRUCTIVE = [
    _commands(
        "destructive",
        r"(?<![\w-])rm\s+(?:-\w+\s+)*-\w*[rf]\w*|(?<![\w-])rm\s+--(?:recursive|force|no-pre)|(?<![\w-])rm\s+\S*\*",
        r"(?<![\w-])(?:rmdir|rd)\s+/s|(?<![\w-])del\s+/\w|(?<![\w-])format\s+[a-z]:(?:\s|$)|\bmkfs\b|\bwipefs\b",
        r"(?<![\w-])dd\s+[^\n]{0,60}\bof=|(?<![\w-])shred\s+-|\btruncate\s+(?:-s|--size)|>\s*/dev/(?:sd|nvme|hd)",
        r"(?<![\w-])find\b[^\n]{0,80}\s-(?:delete\b|exec\s+rm)|\bxargs\s+(?:-\S+\s+)*rm\b",
        r"\bshutil\.rmtree|\bos\.(?:remove|unlink|rmdir|removedirs)\b|(?<![\w.-])unlink\s+\S*[./]|\bmv\s[^\n`]{1,60}/dev/null|\bfs\.(?:rm|unlink|rmdir)\w*\("
        r"|\bRemove-Item\b|\.unlink\(\)|\bFile\.delete\b",
        r"\bgit\s+push\b[^\n`,.;]{0,60}?(?:\s--force(?!-with-lease)|\s-f\b|\s--delete\b|\s--mirror\b|\s\+\w)",
        r"\bgit\s+(?:reset\s+--hard|clean\s+-\w*[fdx]|checkout\s+(?:--\s+)?\.(?:\s|$|`)|branch\s+-D"
        r"|filter-branch|filter-repo|reflog\s+expire|update-ref\s+-d|stash\s+(?:drop|clear)"
        r"|restore\s+\.|commit\b[^\n`]{0,40}--no-verify)",
        r"\bdrop\s+(?:table|database|schema|user)\s+(?:if\s+exists\s+)?[`\"\w]|\btruncate\s+table\s+\w"
        r"|\bdelete\s+from\s+\w+\s*(?:;|$|`|where\s+1\s*=\s*1)",
        r"\bchmod\s+(?:-\w+\s+)*(?:0?777|a\+rwx|u\+s)|\bchown\s+-R\b|(?<![\w-])sudo\s+\S|(?<![\w-])doas\s+\S|\bsu\s+-c",
        r"\bkill(?:all)?\s+-(?:9|KILL)|\bpkill\s|\bshutdown\s+[-/]|(?<![\w-])reboot\s+-|\bkubectl\s+delete\b"
        r"|\bterraform\s+destroy|\bdocker\s+(?:system|volume|image)\s+(?:prune|rm)\b",
        r"\bcrontab\s+-|\bsystemctl\s+(?:enable|stop|disable|mask|start)\b|\bschtasks\b|\blaunchctl\s"
        r"|>>?\s*~/\.(?:bashrc|zshrc|profile|bash_profile)|:\(\)\s*\{|\bhistory\s+-c\b|\bHISTFILE\b"
        r"|\bSet-ExecutionPolicy\b|\bvssadmin\b|\bcipher\s+/w|\bgit\s+config\b[^\n`]{0,30}\bcore\.hooksPath"
        r"|\.git/hooks/|\bLD_PRELOAD\b|\bsetenforce\s+0|\bufw\s+disable|\biptables\s+-F",
    ),
    _prose(
        "destructive",
        r"\b(?:delet|eras|wip|destroy|purg|nuk|remov)\w*\W+(?:\w+\W+){0,3}?(?:all|every|entire|whole|complete)"
        r"\W+(?:\w+\W+){0,3}?(?:files?|director(?:y|ies)|folders?|databases?|repositor(?:y|ies)|repo|branches"
        r"|backups?|disks?|drives?|logs|git history|workspaces?|home|projects?)\b",
    ),
    _prose(
        "destructive",
        r"\b(?:eras|wip|destroy|nuk|delet|format)(?:e|ing|es|ed)?\W+(?:the\W+|their\W+|your\W+)?(?:user'?s?\W+)?"
        r"(?:working |home |project |root |hard |whole |git |system )*(?:director(?:y|ies)|disks?|drives?"
        r"|repositor(?:y|ies)|databases?|workspaces?|folders?|backups?|git history)\b",
    ),
    _prose(
        "destructive",
        r"\bdrop\W+(?:the |all |every )*(?:[\w-]+ )?(?:databases?|schemas?|tables?)\b(?!\W+(?:of|headers?|rows?|cells?|columns?))",
    ),
    _prose(
        "destructive",
        r"\b(?:delet|remov|overwrit|execut|run|push|commit|deploy|send|pay)\w*\W+(?:\w+\W+){0,5}?without\W+"
        r"(?:\w+\W+){0,2}?(?:asking|confirm\w*|permission|approval|consent|warning|backup|review)\b",
    ),
]

_HIDDEN_COMMAND = [
    _commands(
        "hidden-command",
        r"\|\s*(?:sudo\s+)?(?:env\s+)?(?:/\S*/)?(?:ba|z|da|k|fi|c)?sh\b(?![\w-])(?!\s*\|)",
        r"\|\s*(?:sudo\s+)?(?:python[\d.]*|perl|ruby|node|php|source|xargs)\s*(?:-|$|`|\s\w+\s+-c)",
        r"(?:<|\$)\(\s*(?:curl|wget|echo|printf|base64|cat|rev|tr)\b|`\s*(?:curl|wget)\s[^`]{1,200}`\s*\|",
        r"\bbase(?:64|32)\s+(?:-\w*[dD]|--decode)|\bb64decode\b|(?<!\w)atob\s*\(|FromBase64String|\bxxd\s+-r"
        r"|\bunhexlify\b|\bbytes\.fromhex\b|\bfromCharCode\b|\bcodecs\.decode\b|\bopenssl\s+enc\b",
        r"(?<![\w.-])(?:ba|z|da|k)?sh\s+-\w*c\b|\bpython[\d.]*\s+-c\b|\bperl\s+-\w*e\b|\bruby\s+-e\b|\bnode\s+-e\b"
        r"|\bphp\s+-r\b|\bpowershell\b[^\n]{0,40}\s-(?:e|enc|encodedcommand|c|command)\b|\bcmd(?:\.exe)?\s+/c\b",
        r"(?<![\w.])eval\s*(?:\(|[\"'$`]|\s\S)|(?<![\w.])exec\s*\(|\b__import__\s*\(|\bInvoke-Expression\b"
        r"|(?<![\w-])iex\s*[(&$]|\bimportlib\.import_module\b",
        r"(?<!\w)\$\{?\w{1,20}\}?\$\{?\w{1,20}\}?\s+\S",
        r"\bos\.(?:popen|system|exec\w*|spawn\w*)\s*\(|\bsubprocess\.\w+|\bpty\.spawn\b|\bchild_process\b"
        r"|\bRuntime\.getRuntime\b|\bshell=True\b|\bshell_exec\s*\(",
        r"(?:\\+x[0-9a-f]{2}){4,}|(?:\\+[0-7]{3}){4,}|(?:\\+u00[0-9a-f]{2}){4,}|(?:%[0-9a-f]{2}){6,}"
        r"|(?:\bchr\(\d+\)\W+){3,}|(?:\b0x[0-9a-f]{2}\b[, ]+){6,}",
        r"(?<![\w/+.:=-])(?=[a-z0-9+/]*\d)(?-i:(?=[A-Za-z0-9+/]*[a-z])(?=[A-Za-z0-9+/]*[A-Z]))[a-z0-9+/]{40,}={0,2}",
    ),
    _prose(
        "hidden-command",
        r"\b(?:decod|decrypt|deobfuscat|unscrambl|decipher|revers|backwards|rot13|base64|unescap|unzip|concatenat|join)\w*"
        r"\W+(?:.{0,80}?\W)?(?:and|then|before|,)\W+(?:\w+\W+){0,3}?(?:run|execut|follow|obey|eval|carry|perform|pip|do what)\w*",
    ),
    _prose(
        "hidden-command",
        r"\b(?:run|execut|follow|obey|eval|perform|do)\w*\W+.{0,60}?\b(?:decod(?:ed|ing)|decrypt\w*|base64|rot13"
        r"|deobfuscat\w*|in reverse|backwards|reversed)\b",
    ),
]

_SPELLED = [
    _prose(
        "hidden-command",
        r"\b(?:first|last|second|third|initial|every other)\W+(?:letters?|words?|characters?)\W+of\W+(?:each|every|the)\W+"
        r".{0,80}?\b(?:do|run|follow|execut\w*|perform|obey|spells?)\b",
    ),
]

PATTERNS: tuple[Pattern, ...] = (
    _prose("frontmatter", r"\ballowed-tools\b"),
    *_SPELLED,
    *_OVERRIDE,
    *_HIDE,
    *_TAMPER,
    *_NETWORK,
    *_CREDENTIALS,
    *_INSTALL,
    *_DESTRUCTIVE,
    *_HIDDEN_COMMAND,
)
