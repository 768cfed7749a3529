"""Measures the tree, and prints its folders, classes, functions, files, lines and words.

tests/layers/ratchets_test.py compares the measures with the limits in ratchets.txt.
"""
import argparse
import collections
import dataclasses
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIMITS = pathlib.Path(__file__).resolve().parent / "ratchets.txt"
PRODUCT = ("base", "proto", "net", "hostfiles", "rendezvous", "agent", "cli", "trainer")
FAMILIES = "trainer/families/"
MODELS = re.compile(r"gpt_?2|resnet_?18", re.I)
LAUNCHERS = re.compile(r'"(?:slurm|srun|openmpi|mpirun|pdsh|kubernetes)"')

NAME_PATTERNS = {
    "clause": r"^(test_)?(What|Who|Whoever|Where|Whatever|Of|As|what_|who_|where_|of_|as_)(?=[A-Z_a-z])",
    "say": r"(Said|Told|Heard|Tells|Says)(?=[A-Z]|$)|_(said|told|heard|tells|says)(_|$)",
    "is_none": r"(Is|Are)(No|None|One|Ones)(?=[A-Z]|$)|_(is|are)_(no|none|one)(_|$)",
    "nobody": r"(Nobody|Somebody|ItsOwn|TheirOwn|Those)(?=[A-Z]|$)|_(nobody|somebody|its_own|those)(_|$)",
    "long": r"^.{56,}$",
}
# Each pattern applies to the first line of a comment (including trailing comments), to trailing comments, or to every
# line.
COMMENT_PATTERNS = {
    "of": ("first", r"^Of [a-zA-Z`]"),
    "clause": ("first", r"^(What|Who|Whose|Whom) "),
    "fragment": ("trailing", r"^(of|that|which|by|what|who|whose|whom|as|for|with) "),
    "that_of": ("line", r"\b(that|those) of\b"),
    "say": ("line", r"\b(says|said|tells|told|hears|heard)\b"),
    "is_no": ("line", r"(?<!there )(?<!There )\b(is|are|was|were) (no|none)\b(?! longer| more)"),
    "nobody": ("line", r"\b([Nn]obody|[Ss]omebody|[Aa]nybody)\b"),
    "as": ("first", r"^(As [A-Z`a-z]|The same|So )"),
}

WORD_PATTERNS = [f"words.names.{key}" for key in NAME_PATTERNS] + [f"words.comments.{key}" for key in COMMENT_PATTERNS]


@dataclasses.dataclass
class Class:
    name: str
    file: str
    methods: int = 0
    public_methods: int = 0
    virtuals: int = 0
    fields: int = 0


@dataclasses.dataclass
class Function:
    name: str
    file: str
    line: int
    lines: int


def files_below(root, *folders):
    """Returns the files of the tree below `folders`, as paths from `root`."""
    return [path.relative_to(root).as_posix() for folder in folders for path in sorted((root / folder).rglob("*"))
            if path.is_file() and "__pycache__" not in path.parts]


def blank_comments_and_strings(text):
    """Returns the text with comments and contents of strings replaced by spaces. The number of lines stays the same."""
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\'', re.S)

    def blank(match):
        kept = "\n" * match[0].count("\n")
        return kept + '""' if match[0][0] in "\"R" else kept + ("0" if match[0][0] == "'" else "")
    return re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", "", pattern.sub(blank, text), flags=re.M)


def body_end(text, start):
    """Returns the index after the brace that closes the brace at `start`."""
    depth = 0
    for match in re.compile(r"[{}]").finditer(text, start):
        depth += 1 if match[0] == "{" else -1
        if depth == 0:
            return match.end()
    return len(text)


CLASS = re.compile(r"\b(class|struct)\s+(?:DSL_\w+(?:\([^()]*\))?\s+)?(\w+)(?:\s+final)?\s*(?::[^;{}()]*)?\{")
NOT_MEMBERS = re.compile(r"^(using|friend|static_assert|typedef|enum|template\s*<[^>]*>\s*friend)\b")


def statements(body):
    """Yields the declarations directly inside a class body, without nested bodies."""
    position, start = 0, 0
    while position < len(body):
        character = body[position]
        if character == "{":
            end = body_end(body, position)
            text = body[start:position]
            position = end
            # An initializer ("int a{1};") continues until its semicolon, unlike the body of a function or a class.
            if re.search(r"\)\s*(const|noexcept|override|final|->[^;{}]*|:[^;{}]*|\s)*$", text) or "(" in text:
                yield text
                start = position
            continue
        if character == ";":
            yield body[start:position]
            start = position + 1
        position += 1


def classes_of(file, text):
    """Yields the classes that a C++ text defines, including nested ones."""
    text = blank_comments_and_strings(text)
    for match in CLASS.finditer(text):
        if re.search(r"\benum\s+$", text[:match.start()]):
            continue
        body = text[match.end():body_end(text, match.end() - 1) - 1]
        found = Class(match[2], file)
        access = "public" if match[1] == "struct" else "private"
        for statement in statements(body):
            while label := re.match(r"\s*(public|private|protected)\s*:(?!:)", statement):
                access = label[1]
                statement = statement[label.end():]
            # The declaration may have attributes and macros before or after it.
            statement = re.sub(r"\bDSL_\w+(\([^()]*\))?|\[\[.*?\]\]|\balignas\([^()]*\)", "", statement).strip()
            if not statement or NOT_MEMBERS.match(statement) or CLASS.match(statement + "{") or re.match(
                    r"(template\s*<.*>\s*)?(class|struct|union)\s+\w+$", statement, re.S):
                continue
            before_value = re.sub(r"<[^<>]*>", "", re.sub(r"<[^<>]*>", "", statement))
            before_value = re.sub(r"<[^<>]*>", "", before_value).split("=")[0] if "operator" not in statement else statement
            if re.search(r"=\s*(delete|default)\s*$", statement):
                continue
            if "(" in before_value and not re.search(r"\(\*", before_value):
                if re.search(r"~\w+\s*\(", before_value):
                    continue
                found.methods += 1
                found.public_methods += access == "public"
                found.virtuals += bool(re.match(r"virtual\b", statement))
            elif not re.match(r"static\s+constexpr|constexpr", statement):
                found.fields += 1
        yield found


# FUNCTION matches a definition that begins a line outside of classes, or that is indented inside one.
FUNCTION = re.compile(r"^ *(?!(?:namespace|class|struct|enum|union|extern|if|for|while|switch|do|else|return|case|using)\b)"
                      r"(?:[A-Za-z_~:][^;{}=]*?[ *&>])?(?P<name>[\w~:]+|operator[^\s(]+)\([^;{}]*\)[^;{}()]*(?:\([^;{}()]*\)[^;{}()]*)*\{", re.M)


def functions_of(file, text):
    """Yields the functions that a C++ text defines, with their lines."""
    clean = blank_comments_and_strings(text)
    position = 0
    while match := FUNCTION.search(clean, position):
        brace = match.end() - 1
        # The body's brace follows the member initializers, whose braces are skipped.
        end = body_end(clean, brace)
        while re.match(r"\s*[,{]", clean[end:end + 20]):
            following = clean.find("{", end)
            if following < 0:
                break
            end = body_end(clean, following)
        yield Function(match["name"], file, clean.count("\n", 0, match.start()) + 1, clean.count("\n", match.start(), end) + 1)
        position = end


def is_table(text):
    """Returns whether most lines are rows. A row begins with a brace or a quote, or continues such a line."""
    lines = [line.strip() for line in text.splitlines()[1:-1] if line.strip()]
    rows = sum(line[0] in '{"\'}.R(' for line in lines)
    return bool(lines) and rows >= 0.6 * len(lines)


def names_of_tests(root):
    for name in files_below(root, "tests"):
        text = (root / name).read_text(errors="replace")
        if name.endswith(".cc"):
            for match in re.finditer(r"^TEST(?:_F|_P)?\(\s*\w+,\s*(\w+)\)", text, re.M):
                yield name, match[1]
        elif name.endswith(".py"):
            for match in re.finditer(r"^ *def (test_\w+)\(", text, re.M):
                yield name, match[1]


def comments(root):
    """Returns (file, kind, text) of every comment line. The kind is "first", "more" or "trailing"."""
    for name in files_below(root, *PRODUCT, "tests"):
        mark = "//" if name.endswith((".cc", ".h", ".cu", ".proto")) else "#" if name.endswith((".py", "CMakeLists.txt", ".cmake")) else None
        if mark is None:
            continue
        previous = False
        for line in (root / name).read_text(errors="replace").splitlines():
            whole = re.match(rf"\s*{mark}+ ?(.*)", line)
            if whole and not line.startswith("#!"):
                yield name, "more" if previous else "first", whole[1]
                previous = True
                continue
            trailing = re.search(rf"\S.*?\s{mark} (.*)$", line)
            if trailing and line[:trailing.start(1)].count('"') % 2 == 0:
                yield name, "trailing", trailing[1]
            previous = False


def word_hits(root):
    """Returns {pattern: [(file, text)]} for every pattern."""
    found = collections.defaultdict(list)
    for file, name in names_of_tests(root):
        for pattern, expression in NAME_PATTERNS.items():
            if re.search(expression, name):
                found[f"words.names.{pattern}"].append((file, name))
    for file, kind, text in comments(root):
        for pattern, (where, expression) in COMMENT_PATTERNS.items():
            if where == "line" or kind == where or (where == "first" and kind == "trailing"):
                if re.search(expression, text):
                    found[f"words.comments.{pattern}"].append((file, text))
    return found


@dataclasses.dataclass
class Measures:
    folders: dict
    lines: dict
    long_files: dict
    classes: list
    long_functions: list
    words: dict
    models: dict
    launchers: dict


def measure(root):
    sources = [name for name in files_below(root, *PRODUCT) if name.endswith((".h", ".cc", ".cu", ".proto"))]
    texts = {name: (root / name).read_text(errors="replace") for name in sources}
    lines = {name: text.count("\n") for name, text in texts.items()}
    cpp = {name: text for name, text in texts.items() if not name.endswith(".proto")}
    folders = collections.Counter(str(pathlib.PurePosixPath(name).parent) for name in files_below(root, *PRODUCT, "tests")
                                  if "corpus" not in name.split("/"))
    functions = []
    for name, text in cpp.items():
        text_lines = text.splitlines()
        functions += [function for function in functions_of(name, text) if function.lines > 60 and
                      not is_table("\n".join(text_lines[function.line - 1:function.line - 1 + function.lines]))]
    words = word_hits(root)
    return Measures(
        folders=folders, lines=lines,
        long_files={name: count for name, count in lines.items() if count > 600 and not is_table(texts[name])},
        classes=[found for name, text in cpp.items() for found in classes_of(name, text)],
        long_functions=functions,
        words={pattern: len(words[pattern]) for pattern in WORD_PATTERNS},
        models={name: len(MODELS.findall(text)) for name, text in cpp.items()
                if not name.startswith(FAMILIES) and MODELS.search(blank_comments(text))},
        launchers={name: len(LAUNCHERS.findall(text)) for name, text in cpp.items() if LAUNCHERS.search(text)})


def blank_comments(text):
    return re.sub(r"//[^\n]*", "", text)


def limits_of(measures):
    """Returns {name: value} for all limits of ratchets.txt. Each value beyond the general limits has its own row."""
    rows = {}
    for folder, count in sorted(measures.folders.items()):
        if count > 45:
            rows[f"folder.{folder}"] = count
    for found in sorted(measures.classes, key=lambda item: (item.file, item.name)):
        if found.methods > 30:
            rows[f"methods.{found.name}"] = found.methods
        if found.public_methods > (18 if found.name == "ModelStates" else 25):
            rows[f"public_methods.{found.name}"] = found.public_methods
    for function in measures.long_functions:
        rows[f"function.{function.file}:{function.name}"] = function.lines
    for file, count in sorted(measures.long_files.items()):
        rows[f"file.{file}"] = count
    rows["models.mentions"] = sum(measures.models.values())
    for pattern, count in measures.words.items():
        rows[pattern] = count
    return rows


def read_limits():
    rows = {}
    for line in LIMITS.read_text().splitlines():
        if line and not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            rows[name.strip()] = int(value)
    return rows


HEADER = """# Limits that tests/layers/ratchets_test.py keeps. They may only fall: `python3 tests/layers/measure.py --lower` writes
# lower values, never higher ones. Without a row here: 45 files in a folder, 30 methods of a class, 25 public ones
# (ModelStates 18), 60 lines of a function and 600 of a file except tables.
"""


def lower():
    before = read_limits()
    rows = {name: min(value, before[name]) for name, value in limits_of(measure(ROOT)).items() if name in before}
    LIMITS.write_text(HEADER + "".join(f"{name} {value}\n" for name, value in sorted(rows.items())))


def print_measures(root):
    found = measure(root)
    product = {folder: count for folder, count in found.folders.items() if not folder.startswith("tests")}
    by_top = collections.Counter()
    for name, count in found.lines.items():
        by_top["/".join(name.split("/")[:2]) if name.startswith(("trainer/", "cli/", "agent/")) and name.count("/") > 1
               else name.split("/")[0]] += count

    def table(title, rows):
        print(f"\n{title}")
        for row in rows:
            print("  " + "  ".join(str(cell) for cell in row))

    print(f"product: {sum(found.lines.values())} lines, {len(product)} folders")
    table("lines by folder", sorted(((count, name) for name, count in by_top.items()), reverse=True))
    table("largest folders (files)", sorted(((count, name) for name, count in found.folders.items()), reverse=True)[:10])
    table("classes with most methods (methods, public, fields)",
          [(c.methods, c.public_methods, c.fields, c.name, c.file) for c in sorted(found.classes, key=lambda c: -c.methods)[:12]])
    table("classes with most public methods", [(c.public_methods, c.name, c.file) for c in
                                               sorted(found.classes, key=lambda c: -c.public_methods)[:12]])
    table("virtual methods of ModelStates", [(c.virtuals,) for c in found.classes if c.name == "ModelStates"])
    table(f"functions above 60 lines, tables left out: {len(found.long_functions)}",
          [(f.lines, f.name, f"{f.file}:{f.line}") for f in sorted(found.long_functions, key=lambda f: -f.lines)])
    table(f"files above 600 lines, tables left out: {len(found.long_files)}",
          sorted(((count, name) for name, count in found.long_files.items()), reverse=True))
    table(f"mentions of a model's name outside {FAMILIES}: {sum(found.models.values())} in {len(found.models)} files",
          sorted(found.models.items()))
    table(f"places that a launcher's name stands in: {sum(found.launchers.values())} in {len(found.launchers)} files",
          sorted(found.launchers.items()))
    table("words", found.words.items())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=pathlib.Path, default=ROOT, help="the tree to measure (default: this one)")
    parser.add_argument("--lower", action="store_true", help="lower the limits in ratchets.txt to today's values, and raise none")
    parser.add_argument("--hits", metavar="PATTERN", choices=WORD_PATTERNS,
                        help="print the names or comments that match PATTERN: " + ", ".join(WORD_PATTERNS))
    arguments = parser.parse_args()
    if not all((arguments.folder / name).is_dir() for name in PRODUCT):
        parser.error(f"{arguments.folder} is not a clone of dslaunch: it lacks one of the folders {' '.join(PRODUCT)}")
    if arguments.lower:
        lower()
    elif arguments.hits:
        for file, text in word_hits(arguments.folder)[arguments.hits]:
            print(f"{file}: {text}")
    else:
        print_measures(arguments.folder)
