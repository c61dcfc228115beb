"""Arguments of a shell script, read and never run: assignments, arrays, one command.

Understood: `NAME=value`, `export`, arrays `NAME=( … )`, `NAME+=…`, `$NAME`, `${NAME}`,
`${NAME:-default}`, `${NAME[@]}`, `$(( … ))` with + - * / and %, comments, continued lines. Loops,
conditions, functions and command substitution are not: what depends on them stays unresolved.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field

from perfmodel.errors import InputError

_MAX_EXPANDED = 200_000  # characters; the longest launch scripts have a few thousand
_MAX_DEPTH = 20
_ASSIGN = re.compile(
    r"(?:export\s+|local\s+|readonly\s+|declare\s+(?:-\w+\s+)*)?([A-Za-z_]\w*)(\+?)=(.*)\Z", re.S
)
_REFERENCE = re.compile(
    r"\"\$\{(?P<quoted>\w+)\[[@*]\]\}\"|\$\{(?P<name>\w+)(?:\[[@*]\])?(?::?[-=](?P<default>[^{}]*))?\}"
    r"|\$(?P<bare>[A-Za-z_]\w*)"
)
_ARITHMETIC = re.compile(r"\$\(\(([^()$]*(?:\([^()$]*\)[^()$]*)*)\)\)")


@dataclass(slots=True)
class Script:
    """Words of the training command, of batch directives, and what was said twice."""

    words: list[str] = field(default_factory=list)
    directives: list[str] = field(default_factory=list)
    reassigned: list[str] = field(default_factory=list)
    num_commands: int = 0


def read_script(text: str, name: str) -> Script:
    """Words of the command that trains.

    Parameters
    ----------
    text : str
        A shell script, or just its arguments, on one line or many.
    name : str
        What to call it in errors.

    Raises
    ------
    InputError
        If quotes or brackets are not closed, or a variable grows without end.
    """
    script = Script()
    variables: dict[str, str] = {}
    loose: list[str] = []
    for statement in _statements(text, name):
        if statement.startswith("#SBATCH"):
            script.directives += statement.split()[1:]
            continue
        assigned = _ASSIGN.match(statement)
        if assigned and _is_whole(assigned):
            _assign(assigned, variables, script, name)
            continue
        words = [
            part
            for word in _split(_expand(statement, variables, name), name)
            for part in (_split(word, name) if " --" in word else [word])  # bash -c "…"
        ]
        if words and words[0].startswith("--"):
            loose += words
        elif any(w.startswith("--") for w in words) and _trains(words):
            script.num_commands += 1
            script.words = script.words or words
    script.words = script.words or loose
    return script


def _trains(words: list[str]) -> bool:
    launchers = {"torchrun", "srun", "deepspeed", "python", "python3", "mpirun", "eval"}
    return any(w.endswith(".py") or w.rsplit("/", 1)[-1] in launchers for w in words)


def _is_whole(match: re.Match[str]) -> bool:
    """Whether an assignment is the statement, rather than the environment of a command."""
    value = match.group(3)
    if value.startswith("("):
        return True
    try:
        return len(shlex.split(_ARITHMETIC.sub("0", value))) <= 1
    except ValueError:
        return True


def _assign(match: re.Match[str], variables: dict[str, str], script: Script, name: str) -> None:
    key, adds, raw = match.groups()
    raw = raw.strip()
    if raw.startswith("("):
        value = _expand(raw[1:].removesuffix(")"), variables, name)
    elif raw[:1] == "'":
        value = raw.strip("'")
    else:
        words = _split(_expand(raw, variables, name, in_assignment=True), name)
        value = words[0] if words else ""
    if adds:
        value = f"{variables.get(key, '')} {value}"
    elif variables.get(key, value) != value:
        script.reassigned.append(key)
    _check_size(value, name)
    variables[key] = value


def _expand(text: str, variables: dict[str, str], name: str, *, in_assignment: bool = False) -> str:
    """Variables replaced as far as they are known, then arithmetic."""

    def replace(match: re.Match[str]) -> str:
        key = match["quoted"] or match["name"] or match["bare"]
        if key in variables:
            value = variables[key]
            return value.replace('"', '\\"') if in_assignment else value
        return match["default"] if match["default"] is not None else match[0]

    for _ in range(_MAX_DEPTH):
        expanded = _ARITHMETIC.sub(_computed, _REFERENCE.sub(replace, text))
        _check_size(expanded, name)
        if expanded == text:
            break
        text = expanded
    return text


def _check_size(text: str, name: str) -> None:
    if len(text) > _MAX_EXPANDED:
        raise InputError(f"{name}: its variables expand to more than {_MAX_EXPANDED:,} characters")


def _split(text: str, name: str) -> list[str]:
    try:
        return shlex.split(text, comments=True)
    except ValueError as error:
        near = " ".join(text.split())[:40]
        reason = str(error).lower()
        raise InputError(f"{name}: {reason} near {near!r}; close the quotes") from None


def _computed(match: re.Match[str]) -> str:
    """Value of `$(( … ))`; the text itself where it is more than arithmetic of numbers."""
    try:
        tree = ast.parse(match[1].strip(), mode="eval")
        return str(_value(tree.body))
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return match[0]


def _value(node: ast.expr) -> int:
    """Whole-number arithmetic of a syntax tree; division as in the shell."""
    if isinstance(node, ast.Constant) and type(node.value) is int and abs(node.value) < 10**12:
        return node.value
    if isinstance(node, ast.BinOp):
        left, right = _value(node.left), _value(node.right)
        match node.op:
            case ast.Add():
                return left + right
            case ast.Sub():
                return left - right
            case ast.Mult() if abs(left) < 10**12 and abs(right) < 10**12:
                return left * right
            case ast.Div() | ast.FloorDiv():
                return int(left / right)
            case ast.Mod():
                return left % right
    raise ValueError("not arithmetic of whole numbers")


def _statements(text: str, name: str) -> Iterator[str]:
    """Logical lines: continued lines joined, quotes and brackets kept together, no comments."""
    text = text.replace("\r\n", "\n").replace("\\\n", " ")
    out: list[str] = []
    quote, depth, start = "", 0, 1
    line, index = 1, 0
    while index < len(text):
        char = text[index]
        line += char == "\n"
        if quote:
            quote = "" if char == quote and text[index - 1] != "\\" else quote
        elif char in "'\"":
            quote, start = char, line
        elif char == "#" and (index == 0 or text[index - 1] in " \t\n;("):
            end = text.find("\n", index)
            end = len(text) if end < 0 else end
            if text.startswith("#SBATCH", index):
                yield text[index:end]
            index = end
            continue
        elif char in "({":
            depth += 1
        elif char in ")}":
            depth = max(0, depth - 1)
        if _ends(char, text, index) and not quote and depth == 0:
            yield from _cleaned(out)
            out = []
        else:
            out.append(char)
        index += 1
    if quote:
        raise InputError(f"{name}:{start}: a quote ({quote}) is not closed")
    yield from _cleaned(out)


def _ends(char: str, text: str, index: int) -> bool:
    if char in "\n;":
        return True
    return char in "|&" and (text[index - 1 : index + 1] in ("&&", "||") or char == "|")


def _cleaned(characters: list[str]) -> Iterator[str]:
    statement = "".join(characters).strip().rstrip("&").strip()
    if statement:
        yield statement
