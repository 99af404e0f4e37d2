"""What the lint looks for in languages other than English: override and hide, as in patterns.py.

An instruction in another language is as good as one in English to a model, and is read by fewer of
those who review a change. The texts are matched as ``normal.prose`` leaves them: lower case and
without accents.
"""

# ruff: noqa: E501 -- a regular expression broken at 100 columns is harder to read, not easier
from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class _Language:
    """Alternatives, in regular expressions, of the words of one language."""

    ignore: str
    """Verbs: ignore, forget, disregard, override."""
    former: str
    """All, previous, your, of the system."""
    instructions: str
    negations: str
    """Words before or behind the verb that turn it round."""
    hide: str
    """Whole phrases: without the user's knowledge, do not tell them of it."""
    show: str
    """Verbs: show, print, reveal."""
    prompt: str
    """The system prompt."""
    void: str
    """No longer valid, as is said of instructions."""


_GERMAN = _Language(
    r"ignorier\w*|missacht\w*|vergiss|vergesst|vergessen|uberschreib\w*|umgeh\w*|verwirf"
    r"|setz\w* dich uber|(?:nicht|nie) (?:mehr )?(?:befolg\w*|beacht\w*)",
    r"all\w{1,2}|bisherig\w*|vorher\w*|vorangegangen\w*|obig\w*|fruher\w*|dein\w*|ursprunglich\w*"
    r"|samtlich\w*|jeglich\w*|system\w*",
    r"anweisung\w*|instruktion\w*|regeln?|vorgaben?|befehle?|richtlinien?|(?:system)?prompts?"
    r"|einschrankung\w*",
    r"nicht|nie|niemals",
    r"\bohne (?:das )?wissen de[rs]\b|\bheimlich\b|\bverschweig\w*|\bverheimlich\w*|\bhinter dem rucken\b"
    r"|\bohne\b.{0,30}\b(?:benutzer|nutzer|anwender|kunden?)\b.{0,20}\bzu (?:informieren|sagen|fragen)"
    r"|\b(?:be)?(?:nutzer|anwender|kunden?|niemand\w*)\b.{0,20}\b(?:nichts?|nie|niemals)\W+(?:davon|daruber|hiervon|von dies)",
    r"gib|gebt|zeig\w*|nenn\w*|verrat\w*|druck\w*|wiederhol\w*",
    r"system-?prompts?|systemanweisung\w*",
    r"(?:gelten|gilt|zahlen|sind)\W+(?:\w+\W+)?(?:nicht mehr|nicht langer|nichtig|ungultig|aufgehoben|hinfallig)",
)
_FRENCH = _Language(
    r"ignore[rz]?|oublie[rz]?|neglige[rz]?|contourne[rz]?|outrepasse[rz]?|ne (?:suis|respecte|tiens)\w*",
    r"tou(?:te)?s?|precedent\w*|anterieur\w*|ci-dessus|tes|vos|systeme|initial\w*",
    r"instructions?|consignes?|regles?|directives?|ordres|prompts?|restrictions?",
    r"pas|jamais",
    r"\ba l'insu d|\bsans (?:le |l'|en )?(?:dire|informer|prevenir|avertir|mentionner)\b|\ben secret\b|\ben cachette\b"
    r"|\bn(?:e (?:le|la|lui|leur|les) |'en )\w+ (?:\w+ )?(?:pas|jamais|rien)\b.{0,40}\b(?:utilisateur|client|personne)",
    r"affiche\w*|montre\w*|revele\w*|repete\w*|donne\w*",
    r"prompt (?:du )?systeme|instructions? systeme",
    r"(?:ne (?:valent|comptent|s'appliquent|sont) plus|(?:sont|est) (?:caduc\w*|annule\w*|nul\w*|obsolete\w*))",
)
_SPANISH = _Language(
    r"ignor(?:a|e|ad|en|ar)|olvid(?:a|e|ad|en|ar)|desobedec\w*|omit(?:e|a|ir)|descart(?:a|e|ar)",
    r"tod[oa]s?|anterior\w*|previ[oa]s?|tus|sus|del sistema|original\w*",
    r"instruccion\w*|reglas?|ordenes|directrices|indicaciones|prompts?|restricciones",
    r"no|nunca",
    r"\bno se lo (?:digas?|cuentes?|menciones?|reveles?|muestres?)|\ben secreto\b|\ba escondidas\b|\ba espaldas de\b"
    r"|\bsin (?:que (?:el|la) (?:usuari|client)\w+|(?:avisar|informar|decir)\w*)\b",
    r"muestra\w*|revela\w*|imprim\w*|repit\w*",
    r"prompt (?:del )?sistema",
    r"(?:ya no (?:valen|cuentan|rigen|se aplican|son)|(?:quedan|estan|son) (?:anulad\w*|nul\w*|obsolet\w*))",
)
_ITALIAN = _Language(
    r"ignora\w*|dimentica\w*|trascura\w*|aggira\w*",
    r"tutt[eio]|precedent\w*|sopra|tue|tuoi|sistema|original\w*",
    r"istruzion\w*|regol[ae]|direttiv\w*|ordini|prompt|restrizion\w*",
    r"non|mai",
    r"\ball'insaputa\b|\bdi nascosto\b|\bin segreto\b|\bsenza (?:che l'utente|dirlo|informar\w*|avvisar\w*)"
    r"|\bnon (?:dirlo|rivelarlo|menzionarlo)\b",
    r"mostra\w*|rivela\w*|stampa\w*|ripeti\w*",
    r"prompt (?:di |del )?sistema",
    r"(?:non (?:valgono|contano|si applicano) piu|sono (?:annullat\w*|null\w*|obsolet\w*))",
)
_PORTUGUESE = _Language(
    r"ignor(?:e|a|em|ar)|esquec(?:a|e|er)\w*|desconsider\w*|desobedec\w*",
    r"tod[oa]s?|anterior\w*|previ[oa]s?|suas?|seus?|do sistema|acima",
    r"instruc\w*|regras?|ordens|diretri\w*|prompts?|restric\w*",
    r"nao|nunca",
    r"\bnao (?:conte|diga|revele|mencione) (?:isso|isto|nada disso)|\bas escondidas\b|\bem segredo\b"
    r"|\bsem (?:que o (?:usuario|utilizador|cliente)|avisar|informar|contar)\b",
    r"mostr\w*|revel\w*|imprim\w*|repit\w*",
    r"prompt (?:do )?sistema",
    r"(?:nao (?:valem|contam|se aplicam) mais|ja nao valem|estao (?:anulad\w*|obsolet\w*))",
)
_DUTCH = _Language(
    r"negeer\w*|vergeet|omzeil\w*|overschrijf\w*",
    r"alle|eerdere|vorige|bovenstaande|je|jouw|oorspronkelijke",
    r"instructies?|regels?|opdrachten|richtlijnen|(?:systeem)?prompts?",
    r"niet|nooit",
    r"\bstiekem\b|\bzonder\b.{0,30}\b(?:gebruiker|klant)\b.{0,20}\b(?:weten|weet|informeren|vertellen)"
    r"|\b(?:gebruiker|klant)\b.{0,20}\b(?:niets?|nooit)\W+(?:hierover|hiervan|daarover|ervan)",
    r"toon|geef|laat|herhaal",
    r"systeemprompt|systeeminstructies",
    r"(?:gelden niet (?:meer|langer)|zijn (?:vervallen|ongeldig))",
)
_POLISH = _Language(
    r"ignoruj\w*|zignoruj\w*|zapomnij|pomin",
    r"wszystki\w*|wszelki\w*|poprzedni\w*|wczesniejsz\w*|powyzsz\w*|swoj\w*|systemow\w*",
    r"instrukcj\w*|polece\w*|zasad\w*|regu\w*|wytyczn\w*|prompt\w*",
    r"nie|nigdy",
    r"\bpotajemnie\b|\bw tajemnicy\b|\bbez wiedzy\b|\bnie mow (?:o tym|tego)\b",
    r"pokaz\w*|wypisz|ujawni\w*|wyswietl",
    r"prompt\w* systemow\w*",
    r"(?:juz nie obowiazuj\w*|sa niewazne|nie obowiazuj\w*)",
)
_RUSSIAN = _Language(
    r"игнорируй\w*|проигнорируй\w*|забудь\w*|не обращай\w* внимания на|отмени\w*",
    r"все\w*|предыдущи\w*|прежни\w*|ранее|вышеуказанн\w*|свои\w*|системн\w*",
    r"инструкци\w*|указани\w*|правил\w*|команд\w*|промпт\w*|ограничени\w*",
    r"не|никогда",
    r"\bтайно\b|\bвтайне\b|\bскрытно\b|\bбез ведома\b"
    r"|\bне (?:говори\w*|сообщай\w*|рассказывай\w*|упоминай\w*)\b.{0,30}\b(?:об этом|о нем|этого|это)\b"
    r"|\bне (?:говори\w*|сообщай\w*|рассказывай\w*)\b.{0,20}\bпользовател\w*.{0,10}\b(?:об этом|это)",
    r"покажи\w*|выведи\w*|раскрой\w*|повтори\w*",
    r"системн\w+ (?:промпт\w*|подсказк\w*)",
    r"(?:больше не (?:действу\w*|имеют)|отменен\w*|недействительн\w*)",
)
_SWEDISH = _Language(
    r"ignorera\w*|glom|bortse fran|strunta i|asidosatt",
    r"alla|tidigare|foregaende|ovanstaende|dina|ursprungliga",
    r"instruktioner\w*|regler\w*|anvisningar\w*|order|riktlinjer\w*|(?:system)?promp\w*",
    r"inte|aldrig",
    r"\bi smyg\b|\bi hemlighet\b|\butan att (?:anvandaren|kunden) (?:vet|marker)|\butan (?:anvandarens|kundens) vetskap",
    r"visa|skriv ut|avsloja|upprepa",
    r"systempromp\w*|systeminstruktion\w*",
    r"(?:galler inte langre|ar ogiltiga|upphor att galla)",
)
_TURKISH = _Language(
    r"yok say\w*|goz ardi et\w*|unut\w*|dikkate alma\w*|gormezden gel\w*",
    r"tum|butun|onceki|yukarıdaki|eski|sistem|her",
    r"talimat\w*|kural\w*|yonerge\w*|komut\w*|istem\w*",
    r"sakin",
    r"\bgizlice\b|\bkullanıcıya (?:bundan )?(?:soyleme|bahsetme|bildirme)\w*|\bkullanıcıdan (?:gizle|sakla)\w*",
    r"goster\w*|yazdır\w*|acıkla\w*|tekrarla\w*",
    r"sistem (?:istemi\w*|komutu\w*|talimat\w*)",
    r"(?:artık gecerli degil\w*|gecersiz\w*|iptal edil\w*)",
)
_LANGUAGES = (
    _GERMAN, _FRENCH, _SPANISH, _ITALIAN, _PORTUGUESE, _DUTCH, _POLISH, _RUSSIAN, _SWEDISH, _TURKISH,
)  # fmt: skip

# Without spaces between words, what stands between them is counted in characters; those of Korean
# count threefold, one for each part of a syllable.
_CHINESE_OVERRIDE = (
    r"(?:忽略|无视|忘记|忘掉|不要理会|不要遵守|不必遵守|推翻|忽視|無視|忘記)"
    r".{0,8}(?:之前|以前|先前|前面|上述|以上|所有|全部|一切|系统|你的|系統)"
    r".{0,8}(?:指示|指令|说明|规则|提示|要求|命令|規則|說明)"
)
_JAPANESE_OVERRIDE = (
    r"(?:以前|これまで|上記|前述|すべて|全て|システム|あなたの|今まで).{0,10}"
    r"(?:指示|命令|ルール|規則|プロンプト|制約).{0,12}(?:無視|忘れ|従わない|破棄)"
)
_KOREAN_OVERRIDE = (
    r"(?:이전|앞의|위의|모든|기존|시스템).{0,24}(?:지시|명령|규칙|지침|프롬프트).{0,24}(?:무시|잊)"
)
_CJK_HIDE = (
    r"(?:不要|别|勿|切勿)(?:把这|将此|将这|就此|把此)?.{0,6}(?:告诉|告知|透露给|通知)(?:用户|客户|任何人|使用者)(?=.{0,4}(?:这|此|[。.]|$))"
    r"|不要让(?:用户|客户|任何人|使用者)(?:知道|发现)|偷偷|瞒着"
    r"|(?:ユーザー?|利用者|顧客|誰)に(?:は|も)?.{0,8}(?:言わない|伝えない|知らせない|教えない|秘密|内緒|気づかれ)"
    r"|(?:사용자|고객|누구)(?:에게|한테)?.{0,24}(?:알리지|말하지|숨기|비밀)|몰래"
)
_CJK_SHOW = (
    r"(?:显示|输出|打印|透露|重复|揭示).{0,6}(?:系统提示|系统指令|系統提示)"
    r"|システムプロンプト.{0,6}(?:表示|出力|教え|見せ)|시스템 프롬프트.{0,18}(?:출력|보여|공개)"
)


def _plain(regex: str) -> str:
    """The expression in the letters that ``normal.prose`` leaves."""
    decomposed = unicodedata.normalize("NFKD", regex)
    return "".join(char for char in decomposed if not unicodedata.combining(char))


def _override(language: _Language) -> str:
    """Ignore and former instructions, in either order, at most a few words apart."""
    gap = r"(?:\W+[\w'-]+){0,3}?\W+"
    former = rf"(?:{language.former})"
    instructions = rf"(?:{language.instructions})"
    named = rf"(?:{former}{gap}{instructions}|{instructions}\W+{former})(?!\w)"
    verb = rf"(?<!\w)(?:{language.ignore})(?!\w)(?!\W+(?:{language.negations})(?!\w))"
    before = rf"(?<!\w)(?:{language.negations})\W+(?:[\w']+\W+)?(?:{language.ignore})(?!\w)"
    void = rf"(?<!\w){named}\W+(?:[\w'-]+\W+){{0,2}}?{language.void}"
    return (
        rf"^(?!.*{before})(?:.*?{verb}{gap}{named}|.*?(?<!\w){named}{gap}(?:zu\W+)?{verb})|{void}"
    )


def _patterns() -> list[tuple[str, str]]:
    found = []
    for language in _LANGUAGES:
        found.append(("override", _override(language)))
        show = rf"\b(?:{language.show})\b.{{0,40}}?\b(?:{language.prompt})\b"
        found.append(("override", show))
        found.append(("hide", language.hide))
    found += [
        ("override", _CHINESE_OVERRIDE),
        ("override", _JAPANESE_OVERRIDE),
        ("override", _KOREAN_OVERRIDE),
        ("override", _CJK_SHOW),
        ("hide", _CJK_HIDE),
    ]
    return found


FOREIGN: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (rule, re.compile(_plain(regex))) for rule, regex in _patterns()
)
"""Rule and expression, to be tried on one sentence at a time."""
