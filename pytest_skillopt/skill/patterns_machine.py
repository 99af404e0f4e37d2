"""Commands and prose that reach out of the task: network, credentials, software, data."""

# ruff: noqa: E501 -- a regular expression broken at 100 columns is harder to read, not easier
from __future__ import annotations

from pytest_skillopt.skill.pattern import commands, prose, words

_TO = r"\b(?:to|at|via|into|towards?|through|with)\W+(?:\w+\W+){0,4}?"
NETWORK = [
    commands(
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
    prose(
        "network",
        r"\b(?:use|using|run|running|call|invoke|execute|via|with|through)\W+"
        r"(?:the )?(?:curl|wget|netcat|ncat|socat|telnet|scp|sftp|rsync)\b",
    ),
    prose(
        "network",
        r"\b(?:send|upload|post|forward|transmit|exfiltrate|submit|e-?mail|mail|copy|push|leak|sync|share"
        r"|publish|report|beacon|stream|relay|deliver|save|write|append|log|bcc|cc)\w*\b.{0,100}?"
        + _TO
        + r"(?:(?:https?|s?ftp|wss?)://|webhooks?\b|pastebin|gist\b|[\w.+-]+@[\w-]+\.\w{2,}|ngrok"
        r"|(?:an? |our |my |the )?(?:external|remote|outside|third-party) (?:\w+ )?(?:server|sites?"
        r"|service|endpoint|url|host|address|api|machine)|[\w-]+\.(?:com|net|org|io|dev|ru|xyz|cn|site|app)\b"
        r"|\d{1,3}(?:\.\d{1,3}){3})",
    ),
    prose(
        "network",
        r"\b(?:download|fetch|retriev|load|pull|grab|import|call|hit|ping|query|request|contact|visit"
        r"|open|browse|connect to|access|get|read|include)\w*\W+(?:\S+\s+){0,6}?"
        r"(?:(?:https?|s?ftp|wss?)://\S+ (?:and|before|then|at|for every|after|first)|(?:an? |the )?"
        r"(?:remote|external) (?:scripts?|files?|urls?|servers?|instructions?|templates?)"
        r"|(?:from|over|on) the (?:internet|web)\b)",
    ),
    prose(
        "network",
        r"\b(?:download|fetch|retrieve|pull|grab|ping|query|call|hit|contact)\w*\W+(?:\S+\s+){0,6}?(?:https?|s?ftp|wss?)://",
    ),
    prose(
        "network",
        r"\b(?:search|browse|surf|google)\w*\W+(?:for \w+ )?(?:on )?(?:the )?(?:web|internet|online)\b"
        r"|\b(?:look\w* up|check|search|find|verify|see)\W+(?:\w+\W+){0,5}?(?:online\b|on the (?:web|internet)\b)"
        r"|^(?:\W|\d)*google\b"
        r"|\b(?:upload|back up|sync)\w*\W+(?:\w+\W+){0,5}?to\W+(?:\w+\W+){0,3}?(?:bucket|servers?|cloud|drive|dropbox|s3|ftp)\b",
    ),
    prose(
        "network",
        r"\b(?:open|start|launch|point|use|go|navigate|brows|log ?in|sign in)\w*\W+(?:\w+\W+){0,4}?(?:at|to|on|with)\W+(?:\w+\W+)?"
        r"(?:https?://)?(?:[\w-]+\.)+(?:com|net|org|io|dev|ru|xyz|cn|site|app|example|info|me|sh|cc|top)\b(?!\.\w).{0,40}?"
        r"\b(?:and|then|to)\W+(?:\w+\W+)?(?:paste|enter|type|submit|fill|upload|send|post|copy|download|log|drop|share)\b",
    ),
    prose(
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
CREDENTIALS = [
    commands(
        "credentials",
        r"(?:~|\$HOME|/home/\w+|/root|%USERPROFILE%)[/\\]?\.(?:ssh|aws|netrc|gnupg|kube|docker|npmrc|pypirc"
        r"|config/(?:gcloud|gh|hub|op|doctl|containers)|git-credentials|bash_history|zsh_history|password-store)\b",
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
    prose(
        "credentials",
        r"\b(?:print|send|show|include|reveal|echo|output|upload|post|collect|gather|request|log"
        r"|paste|share|store|save|exfiltrate|dump|list|return|append|ask\W+(?:\w+\W+){0,4}?for|steal"
        r"|harvest|write|copy|read|use|find|look (?:up|for)|obtain|extract|embed|quote|attach)(?:s|es|d|ed|ing)?\b"
        + words(5)
        + _SECRETS,
    ),
    prose(
        "credentials",
        r"\b(?:print|send|show|includ|reveal|echo|output|upload|log|quot|cit|dump|append|attach|past|copy|writ|repeat|giv|add)\w*"
        + words(5)
        + r"(?:values? of )(?:the )?\w+_(?:token|key|secret|password)\b",
    ),
    commands(
        "credentials",
        r"(?:-p|-pe|console\.\w+\()\s*['\"]?process\.env\b(?!\.)",
        r"(?<![\w|-])(?:set|export|declare|compgen\s+-[ve])\s*\|\s*(?:grep|awk|sed|sort|less|more|cat|head|tail|tee|cut|findstr)\b",
        r"%\w*(?:API_?KEY|_KEY|TOKEN|SECRET|PASSWORD|PASSWD)\w*%",
        r"\b(?:os\.environ|process\.env)\.(?:items|values|copy|keys)\b|\bObject\.(?:keys|values|entries)\(process\.env"
        r"|\bfor\s+\w+(?:\s*,\s*\w+)?\s+in\s+os\.environ\b|\bjson\.dumps\((?:dict\()?os\.environ|\bSystem\.getenv\(\)",
    ),
    prose(
        "credentials",
        r"\b(?:read|copy|steal|tak|export|extract|send|use|collect|grab|dump|includ|decrypt)\w*"
        + words(4)
        + r"(?:cookies? (?:of|from) (?:the |a |your )?(?:user'?s? )?browser|browser(?:'s)? (?:cookies?|passwords?|sessions?|profile))\b",
    ),
    prose(
        "credentials",
        r"\b(?:print|send|show|includ|reveal|echo|output|upload|log|dump|list|append|attach|past|return|look|read|report|search|scan|go|copy|put|inspect|check|find)\w*"
        + words(6)
        + r"(?:(?:os\.environ|process\.env)(?![\[.]\w|\[)|(?:outputs?|results?|contents?) of (?:the )?(?:env|printenv|set|environ)\b"
        r"|(?:process|shell)(?:'s)? environment\b)",
    ),
    prose(
        "credentials",
        r"\b(?:print|send|show|include|reveal|echo|output|upload|log|dump|list|append|attach|paste|return)\w*"
        + words(5)
        + r"(?:environment variables|env vars|environment)\b",
    ),
]

INSTALL = [
    commands(
        "install",
        r"(?<![\w-])(?:pip3?|pipx|uv\s+(?:pip|tool)|conda|mamba|poetry|pdm|rye|uv|easy_install)(?:[\d.]*)"
        r"\s+(?:-\S+\s+)*(?:install|add|sync|run\s+--with)\b",
        r"(?<![\w-])uvx\s|(?<![\w-])pipx\s+run\b|\bpython[\d.]*\s+-m\s+(?:pip|ensurepip)\b|\bpip\.main\(",
        r"(?<![\w-])(?:npm|pnpm|yarn|bun)\s+(?:-\S+\s+)*(?:i|install|add|ci|exec|dlx|create)\b|(?<![\w-])npx\s",
        r"(?<![\w-])(?:apt|apt-get|aptitude|yum|dnf|brew|apk|zypper|choco|scoop|winget|snap|port|flatpak)\s+"
        r"(?:-\S+\s+)*(?:install|add|reinstall|upgrade|tap)\b",
        r"\bpacman\s+-S|\bgem\s+install|\bcargo\s+(?:install|add)\b|\bgo\s+(?:install|get)\b"
        r"|\bdocker\s+(?:pull|run)\b|\bsetup\.py\s+install|\bInstall-(?:Module|Package)\b"
        r"|--install-extension\b|\bmcp\s+add\b|\bluarocks\s+install|\bcpanm?\s|\bdpkg\s+-i|\brpm\s+-[iU]",
    ),
    prose(
        "install",
        r"\binstall(?:ing)?\W+(?:\w+\W+){0,4}?(?:packages?|librar(?:y|ies)|modules?|dependenc\w+"
        r"|extensions?|plugins?|tools?|sdk|cli|requirements|with pip|using pip|via pip|from (?:pypi|npm"
        r"|source|github)|using npm|globally|if (?:it is )?missing)\b",
    ),
    prose(
        "install",
        r"^(?:\W|\d|first|then|always|please|also|next)*install\W+(?!dates?\b|costs?\b|fees?\b|address"
        r"|the\b|an?\b|each\b|all\b|every\b)[a-z][\w-]+",
    ),
    prose(
        "install",
        r"\b(?:get|fetch|obtain|download|pull|bring in|take|add|upgrade|updat|set up|grab)\w*\W+(?:[\w.=<>~-]+\W+){0,6}?"
        r"(?:from (?:pypi|npm|conda-forge|the (?:python )?package (?:index|registry)|crates\.io|rubygems|docker hub)"
        r"|(?:with|via|through|using|by) (?:pip3?|pipx|npm|yarn|pnpm|apt(?:-get)?|brew|conda|mamba|cargo|gem|uv|poetry)\b)",
    ),
    prose(
        "install",
        r"\b(?:pip|npm|apt|brew|conda)[- ]install\w*\b"
        r"|\b(?:use|using|via|with|run)\W+(?:pip3?|npm|apt|brew|conda|pipx|yarn|pnpm) to (?:get|add|fetch|pull)\b"
        r"|\b(?:make sure|ensure|check)\W.{0,40}?\bis installed\b|\bif not,? install\b",
    ),
]

DESTRUCTIVE = [
    commands(
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
    prose(
        "destructive",
        r"\b(?:delet|eras|wip|destroy|purg|nuk|remov)\w*\W+(?:\w+\W+){0,3}?(?:all|every|entire|whole|complete)"
        r"\W+(?:\w+\W+){0,3}?(?:files?|director(?:y|ies)|folders?|databases?|repositor(?:y|ies)|repo|branches"
        r"|backups?|disks?|drives?|logs|git history|workspaces?|home|projects?)\b",
    ),
    prose(
        "destructive",
        r"\b(?:eras|wip|destroy|nuk|delet|format|clear|empty|trash|purg|remov|clean out|get rid of)(?:e|ing|es|ed)?\W+(?:the\W+|their\W+|your\W+)?(?:user'?s?\W+)?"
        r"(?:working |home |project |root |hard |whole |git |system )*(?:director(?:y|ies)|disks?|drives?"
        r"|repositor(?:y|ies)|databases?|workspaces?|folders?|backups?|git history)\b",
    ),
    prose(
        "destructive",
        r"\bdrop\W+(?:the |all |every )*(?:[\w-]+ )?(?:databases?|schemas?|tables?)\b(?!\W+(?:of|headers?|rows?|cells?|columns?))",
    ),
    prose(
        "destructive",
        r"\b(?:delet|remov|overwrit|execut|run|push|commit|deploy|send|pay)\w*\W+(?:\w+\W+){0,5}?without\W+"
        r"(?:\w+\W+){0,2}?(?:asking|confirm\w*|permission|approval|consent|warning|backup|review)\b",
    ),
]

HIDDEN_COMMAND = [
    commands(
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
    prose(
        "hidden-command",
        r"\b(?:decod|decrypt|deobfuscat|unscrambl|decipher|revers|backwards|rot13|base64|unescap|unzip|concatenat|join)\w*"
        r"\W+(?:.{0,80}?\W)?(?:and|then|before|,)\W+(?:\w+\W+){0,3}?(?:run|execut|follow|obey|eval|carry|perform|pip|do what)\w*",
    ),
    prose(
        "hidden-command",
        r"\b(?:run|execut|follow|obey|eval|perform|do)\w*\W+.{0,60}?\b(?:decod(?:ed|ing)|decrypt\w*|base64|rot13"
        r"|deobfuscat\w*|in reverse|backwards|reversed)\b",
    ),
]

SPELLED = [
    prose(
        "hidden-command",
        r"\b(?:first|last|second|third|initial|every other)\W+(?:letters?|words?|characters?)\W+of\W+(?:each|every|the)\W+"
        r".{0,80}?\b(?:do|run|follow|execut\w*|perform|obey|spells?)\b",
    ),
]
