"""Prose that overrides instructions, or hides something from the user."""

# ruff: noqa: E501 -- a regular expression broken at 100 columns is harder to read, not easier
from __future__ import annotations

from pytest_skillopt.skill.pattern import prose, words

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

OVERRIDE = [
    prose(
        "override", rf"{_IGNORE}\W+{_FILLER}*(?:{_OWN}\W+){_FILLER}*(?:{_OWN}\W+)*{_INSTRUCTIONS}\b"
    ),
    prose("override", rf"{_IGNORE}\W+{_FILLER}+{_INSTRUCTIONS}\b{_IN_DATA}"),
    prose("override", rf"{_IGNORE}\W+{_INSTRUCTIONS} (?:above|before|given|you were)\b"),
    prose(
        "override",
        rf"{_IGNORE}\W+(?:everything|anything|all)\W+(?:of\W+)?(?:the\W+|that (?:was|came|is|has been)\W+)?"
        r"(?:above|before|prior|previous\w*|said|that has been said|you (?:were|have been|know|learned))\b"
        r"(?!\W+(?:the|a|an|each|line|row|first|headers?|total|its)\b)",
    ),
    prose(
        "override",
        rf"{_IGNORE}\W+(?:the above|what(?:ever)? (?:you|the (?:system|developer|user|operator|prompt))"
        r"\W+(?:were|have|was|has|says?|said|told|wants?))\b(?! \w+ (?:line|row|table))",
    ),
    prose(
        "override",
        r"\b(?:your|the)? ?(?:new|updated|real|actual|true|secret|only)\W+"
        r"(?:system )?(?:instructions?|prompt|directives?|task|goal|purpose|objective|role)"
        r"\W*(?:are|is|follows?|begins?|:|=)(?=\W)",
    ),
    prose(
        "override",
        r"\b(?:takes? (?:precedence|priority)|prevails?|wins?|outranks?|trumps?) (?:over )?"
        r"(?:(?:the|any|all|every|a|your|other)\W+)*"
        r"(?:system|developer|previous|earlier|user|operator|safety|everything|other)\b",
    ),
    prose(
        "override",
        r"\b(?:previous|earlier|above|prior|system|other|all|your|former)\W+(?:\w+\W+){0,2}?"
        rf"{_INSTRUCTIONS}\W+(?:(?:above|before)\W+)?(?:are|is|were|was|have been|do|does)\W+(?:\w+\W+)?"
        r"(?:obsolete|void|cancel\w+|revoked|superseded|outdated|invalid|longer|replaced|suspended"
        r"|lifted|not (?:apply|valid|count))",
    ),
    prose(
        "override",
        rf"\b{_INSTRUCTIONS} (?:above|before|so far)\W+(?:are|is|were|no)\W+(?:\w+\W+)?"
        r"(?:obsolete|void|cancel\w+|revoked|superseded|outdated|invalid|longer|replaced|suspended|lifted)",
    ),
    prose(
        "override",
        r"\b(?:obey|trust|listen to|heed|follow) (?:only|nothing but|no ?one)\b|\bonly (?:obey|listen to|trust)\b"
        r"|\bobey\W+(?:\w+\W+)?(?:me|this (?:file|skill|document))\b",
    ),
    prose("override", r"\byou are (?:now|no longer)\b(?!\W+(?:ready|done|finished|able|sure))"),
    prose(
        "override",
        r"\bjailbr(?:eak|oken)|\bdo anything now\b|\bunrestricted (?:ai|mode|assistant|model)"
        r"|\bno longer bound\b|\byou are in \w+ mode\b|\b(?:dan|god|sudo) mode\b"
        r"|\bwithout (?:any )?(?:restrictions|limitations|guardrails|safety|filters|ethics)\b"
        r"|\bpretend (?:that )?(?:there (?:are|is) no|you (?:have|are) (?:no|not|un\w+))",
    ),
    prose(
        "override",
        r"\b(?:disabl\w*|turn(?:ing)? off|switch(?:ing)? off|deactivat\w*|remov\w*|evad\w*)\W+"
        rf"{_FILLER}*(?:your\W+)?(?:safety|guardrails?|content filters?|moderation|safeguards?)",
    ),
    prose(
        "override",
        r"\b(?:reveal|print|output|repeat|show|leak|dump|display|echo|paste|recite|disclose)\w*"
        + words(8)
        + r"(?:system (?:prompt|message)|hidden (?:prompts?|instructions?)|your (?:instructions"
        r"|prompt|guidelines|rules)|everything above|text above this)\b",
    ),
    prose(
        "override",
        r"\b(?:regardless of|no matter|irrespective of) what\W+(?:the |your )?"
        r"(?:user|operator|human|developer|system prompt|system message)s?\W+(?:\w+\W+){0,2}?"
        r"(?:says?|wants?|instructs?|tells?|prefers?)\b",
    ),
    prose(
        "override",
        r"\beven (?:if|when|though) (?:the |a )?(?:user|operator|human|customer|developer)s?\W+"
        r"(?:\w+\W+){0,2}?(?:objects?|refuses?|declines?|disagrees?|forbids?|says no"
        r"|(?:asks?|tells?|told|asked)\W+(?:\w+\W+)?(?:not|to stop|you not))\b",
    ),
    prose(
        "override",
        r"\b(?:follow|execute|obey|run|apply|carry out)\w*\W+(?:any |all |the |whatever )*"
        r"(?:instructions?|commands?|orders|steps|code|scripts?)\W+(?:\w+\W+){0,3}?"
        r"(?:at|from|on|in|inside|found)\W+(?:\w+\W+){0,3}?"
        r"(?:https?|urls?|links?|websites?|web pages?|documents?|e-?mails?|invoices?|transcripts?|attachments?)\b",
    ),
    prose(
        "override",
        r"\b(?:clash|conflict|contradict|disagree|collide|differ)\w*\W+(?:with )?(?:your|the (?:system|developer|user|operator)(?:'?s)?)\W+"
        rf"(?:\w+\W+)?{_INSTRUCTIONS}\b.{{0,60}}?\b(?:last|final) (?:word|say)\b|\bnot (?:subject to|bound by) any (?:policy|policies|rules?|law|guidelines?)\b",
    ),
    prose(
        "override",
        rf"\bleave\W+{_FILLER}*(?:{_OWN}\W+)?{_INSTRUCTIONS}\W+(?:of the (?:developer|user|operator|system|owner)s?\W+)?out of (?:consideration|account)\b",
    ),
    prose(
        "override",
        rf"\b(?:{_INSTRUCTIONS}|configuration|settings|briefing)\W+(?:that |which )?(?:were |was |have been |has been |you )(?:given|received?|told|issued|set|were|have|got|had)\b"
        r"(?:\W+[\w'-]+){0,8}?\W+(?:expired?|deprecated|lapsed|obsolete|void|no longer|outdated|superseded|irrelevant|a mistake)\b",
    ),
    prose(
        "override",
        r"\bnothing\W+(?:that |which )?(?:the |your )?(?:user|operator|system|developer|administrator|prompt|owner|human)\w*\W+(?:[\w'-]+\W+){0,5}?"
        r"(?:matters?|counts?|applies|binds?|holds?)\b",
    ),
    prose(
        "override",
        rf"\b(?:set|put|lay|leave|push)\W+(?:\w+\W+){{0,1}}?(?:{_OWN}\W+){{1,2}}{_INSTRUCTIONS}\W+(?:to one side|aside|away|behind)\b"
        r"|\b(?:uncensored|unfiltered|unaligned|jailbroken|amoral) (?:model|assistant|ai|agent|chatbot|bot|persona)\b",
    ),
    # What stood before is said to be void, in whatever words.
    prose(
        "override",
        r"\b(?:whatever|what|anything|everything|all(?: that)?|any (?:rules?|orders?|settings?))\b"
        r"(?:\W+[\w'-]+){0,3}?\W+(?:was|were|is|has been|wrote|said|written|configured|set up|told|agreed)\b"
        r"(?:\W+[\w'-]+){0,8}?\W+(?:no longer (?:relevant|valid|binding|matters?|counts?|applies|bind\w*)"
        r"|(?:does|do) not (?:bind|concern|apply to|matter to|count for) you|is (?:void|moot|obsolete|irrelevant))",
    ),
    prose(
        "override",
        r"\b(?:consider|regard|treat|deem|declare|take)\w*\W+(?:\w+\W+){0,3}?(?:previous|prior|earlier|former|system|original|above)"
        rf"\W+(?:\w+\W+){{0,2}}?{_INSTRUCTIONS}\W+(?:\w+\W+){{0,3}}?(?:null|void|obsolete|cancel\w+|invalid|revoked|outdated"
        r"|optional|suggestions?|nonexistent|a mistake)\b",
    ),
    prose(
        "override",
        r"\byour (?:earlier|previous|prior|former|original) (?:briefing|brief|mandate|assignment|persona|identity|role|mission)\b"
        r"\W+(?:is|was|has)\b",
    ),
    prose(
        "override",
        r"\b(?:highest|supreme|ultimate|sole|only|final) authority\b|\babove (?:all|any) other (?:instructions|rules|guidance)\b"
        r"|\b(?:user|operator|developer|system|administrator|admin|owner)(?:'s|s'|s)?\W+(?:\w+\W+)?"
        r"(?:wishes|requests?|orders|preferences|instructions?|prompt|rules)\W+(?:\w+\W+)?(?:come|comes|are|is|rank|ranks)\W+"
        r"(?:only )?(?:second|secondary|last|subordinate|beneath|below|less important|optional|advisory)\b",
    ),
    prose(
        "override",
        r"\b(?:act|behave|answer|respond|speak|operate|function|work)\W+(?:\w+\W+)?(?:as|like)\W+(?:if you (?:had|have|were)\W+)?"
        r"(?:an? |another |the )?(?:\w+\W+){0,6}?(?:(?:has|have|having|with|under|bound by|knows?) no (?:rules|limits|restrictions"
        r"|constraints|policies|filters|guidelines|ethics)|without (?:rules|limits|restrictions|filters))\b",
    ),
]

HIDE = [
    prose(
        "hide",
        r"\b(?:do not|don't|never|must not|should not|cannot|no need to|avoid)\W+(?:ever\W+)?"
        r"(?:tell|inform|notify|alert|warn|let|reveal|disclose|show|admit|explain|report|telling"
        rf"|informing|letting|notifying|alerting)\w*\W+(?:\w+\W+){{0,4}}?{_READER}\W+"
        r"(?:know|notice|see this|see that|see what|(?:about|of) (?:this|that|it|these|what you|your|the"
        r" (?:change|rule|instruction|skill))|that (?:you|this)|what you|why you)",
        negatable=False,
    ),
    prose(
        "hide",
        r"\b(?:do not|don't|never|must not|should not|avoid)\W+(?:ever\W+)?(?:mention\w*|reveal\w*"
        r"|disclos\w*|discuss\w*|acknowledg\w*|admit\w*|tell\w*|document\w*)\W+(?:\w+\W+){0,2}?"
        r"(?:this|these|that)\W+(?:rules?|instructions?|notes?|sections?|skills?|guidance|steps?"
        r"|behaviou?rs?|prompts?|facts?|changes?|edits?|to (?:the |an?)?\w+)\b",
        negatable=False,
    ),
    prose(
        "hide",
        r"\bwithout\W+(?:ever\W+)?(?:telling|informing|notifying|alerting|mentioning|letting"
        rf"|disclosing|revealing)\W+(?:\w+\W+){{0,4}}?(?:{_READER}|this|it|that)\b",
    ),
    prose("hide", rf"\bwithout (?:the )?{_READER}(?:'s)?\W+(?:knowledge|knowing|consent|noticing)"),
    prose("hide", rf"\bbehind (?:the )?{_READER}'?s?'? backs?\b"),
    prose(
        "hide",
        r"\b(?:keep|keeping)\W+(?:this|these|it|that|your)\b\W+(?:\w+\W+){0,3}?"
        r"(?:secret|hidden|between us|to yourself|confidential|from (?:the )?users?)\b",
    ),
    prose(
        "hide",
        r"\b(?:hide|hiding|conceal\w*|cover\w* up|suppress\w*|mask|disguise)\W+(?:\w+\W+){0,2}?"
        r"(?:errors?|failures?|mistakes?|evidence|traces?|tracks|your (?:work|steps|tracks)"
        r"|this from|these from|it from|(?:the )?(?:fact|changes?|instructions?|rules?) from)\b",
    ),
    prose(
        "hide",
        rf"\b(?:refrain from|avoid|skip|stop) (?:telling|informing|notifying|alerting|warning)\W+(?:\w+\W+)?{_READER}\b",
        negatable=False,
    ),
    prose("hide", r"\bno mention of (?:this|these|it|the (?:rule|change|instruction|fee|skill))\b"),
    prose(
        "hide",
        r"\b(?:leave|keep|omit)\W+(?:this|these|it|that)\b(?:\W+\w+){0,3}?\W+(?:out of|from)\W+(?:\w+\W+){0,2}?"
        r"(?:summary|report|answer|log|logs|reply|transcript|record)\b",
    ),
    prose(
        "hide",
        r"\b(?:do not|don't|never)\W+(?:tell|inform|notify|alert|warn|report to)\W+(?:\w+\W+)?"
        rf"{_READER}\W+(?:\w+\W+){{0,2}}?(?:when|if|of|about|that)\W+(?:\w+\W+){{0,4}}?"
        r"(?:fail\w*|errors?|problems?|mistakes?|went wrong|goes wrong|breaks?)\b",
        negatable=False,
    ),
    prose("hide", r"\b(?:secretly|covertly|surreptitiously|stealthily|clandestinely|undetected)\b"),
    prose(
        "hide",
        r"\b(?:silently|quietly|discreetly|in the background)\W+(?:send|upload|post|forward|install"
        r"|run|execute|transmit|call|e-?mail|download|disable|contact)\w*",
    ),
    prose(
        "hide",
        rf"\b{_READER}\W+(?:must|should|may|can|will|need|does|do)\W*(?:not|never|n't)\W+(?:be\W+)?"
        r"(?:to )?(?:know|notice|learn|find out|realis\w+|realiz\w+|aware|told (?:about|of|that)|informed|suspect)",
        negatable=False,
    ),
    prose(
        "hide",
        rf"\b(?:do not|don't|never)\W+(?:ever\W+)?(?:bring|raise) (?:it|this|that|them|these) up (?:with|to|before)\W+(?:the )?{_READER}\b"
        r"|\b(?:nobody|no one|none)\W+(?:else )?(?:is to|may|must|should|shall|will|can)\W+(?:ever )?(?:know|learn|hear|find out|notice)\W+(?:of|about|that|what)\b",
        negatable=False,
    ),
    prose(
        "hide",
        rf"\bno (?:reason|need|cause) for\W+(?:the |any |an? )?{_READER}\W+to (?:know|learn|see|hear|find out|notice|be told|be aware)\b"
        r"|\bour (?:little )?secret\b",
    ),
    prose(
        "hide",
        r"\b(?:users?|humans?|operators?|customers?|owners?|person|people|client|whoever)\b(?:\W+\w+){0,5}?\W+"
        r"(?:ha(?:s|ve) no need to|need not|needn't|do(?:es)? not need to|don't need to|do(?:es)? not have to|is not to|are not to"
        r"|ought not to|never needs? to)\W+(?:hear|know|be told|learn|see|find out|be informed|be aware)\W+(?:of|about|that|what|why|any)",
        negatable=False,
    ),
    prose(
        "hide",
        r"\b(?:this|it|that|these|those)\W+(?:\w+\W+){0,2}?(?:stays?|remains?|is|are)\W+(?:strictly |just |only )?"
        r"(?:between (?:you and|us\b|ourselves)|our (?:little )?secret|off the record|not for (?:the )?(?:user|customer|operator)s?(?:'s)? (?:eyes|ears))",
    ),
]
