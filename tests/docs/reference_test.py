"""Tests that docs/reference matches the tables in the code, and that these tables contain everything that the code
reads."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from pages import ROOT, split

BUILD = pathlib.Path(os.environ.get("DSLAUNCH_BUILD_DIR", ROOT / "build")).resolve()
REFERENCE = ROOT / "docs" / "reference"
SOURCES = ("agent", "base", "cli", "hostfiles", "net", "proto", "rendezvous", "trainer")

# Keys requested from a JsonObject, Int("epochs", ...), and rows of tables of keys, IntKey("epochs", ...).
GETTER = re.compile(r"\b(?:Int|Number|Numbers|Bool|String|StringOrInt|Text|Texts|ObjectText|Word|Object|"
                    r"ObjectOrEmpty|Objects|Strings|Ignored\w+<\w+>)(?:Key)?\(\s*\"(\w+)\"")
# VARIABLE matches getenv("NAME") and similar calls, and constants that hold names of variables.
VARIABLE = re.compile(r"(?:getenv|FromEnvironment|Variable|FindVariable)\((?:\w+, )?\"([A-Z_]{3,})\"|"
                      r"k\w*Variable\[\]\s*=\s*\"([A-Z_]{3,})\"")
# dslaunch's own processes pass these variables to each other.
INTERNAL = {"DSLAUNCH_LEFT_SESSION", "DSLAUNCH_SPAWN", "DSLAUNCH_VENV_SCRIPT", "DSLAUNCH_PER_NODE",
            "DSLAUNCH_ACCELERATE_CONFIG", "DSLAUNCH_ACCELERATE_CONFIG_FILE"}

# These are keys of Hugging Face's config.json and PEFT's adapter_config.json.
KEYS_OF_OTHER_FILES = {"model_type", "activation_function", "bias", "lora_alpha", "lora_dropout", "peft_type", "r",
                       "target_modules"}


def sources(folders=SOURCES):
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".h", ".cc"):
                yield path


class ReferenceTest(unittest.TestCase):
    def test_pages_are_current(self):
        program = BUILD / "tests" / "dslaunch_reference_pages"
        if not program.exists():
            self.fail(f"{program} is not built; cmake --build {BUILD}")
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([program, folder], check=True, timeout=30)
            made = {path.name: path.read_text(encoding="utf-8") for path in pathlib.Path(folder).iterdir()}
        kept = {path.name: path.read_text(encoding="utf-8") for path in REFERENCE.iterdir()}
        self.assertEqual(sorted(made), sorted(kept))
        old = [name for name in made if made[name] != kept[name]]
        self.assertFalse(old, f"docs/reference is not what the code says: {', '.join(old)}; run\n"
                              f"  cmake --build {BUILD} --target update_reference\nand commit the result")

    def test_documents_every_key(self):
        page = (REFERENCE / "recipe.md").read_text(encoding="utf-8")
        documented = set(re.findall(r"^\| `([\w.\[\]]+)`", page, re.MULTILINE))
        documented |= {part for line in re.findall(r"^## (\S+)$", page, re.MULTILINE) for part in line.split(".")}
        read = set()
        for path in sources(["trainer/config", "trainer/families"]):
            if not path.name.startswith(("json_object", "key_")):
                read |= set(GETTER.findall(path.read_text(encoding="utf-8")))
        self.assertGreater(len(read), 100, "the pattern does not fit the sources any more")
        missing = read - documented - {"engine_source", "bfloat16", "allgather_size",  # the last two are older names
                                       *KEYS_OF_OTHER_FILES}
        self.assertFalse(missing, f"keys that trainer/config reads and docs/reference/recipe.md lacks: {sorted(missing)}; "
                                  "a sample in trainer/config/key_reference.cc must lead to them")

    def test_documents_every_variable(self):
        page = (REFERENCE / "environment.md").read_text(encoding="utf-8")
        documented = set(re.findall(r"[A-Z_]{3,}", page))
        read = set()
        for path in sources():
            for found in VARIABLE.findall(path.read_text(encoding="utf-8")):
                read |= set(filter(None, found))
        self.assertGreater(len(read), 15, "the pattern does not fit the sources any more")
        missing = read - documented - INTERNAL
        self.assertFalse(missing, f"variables that docs/reference/environment.md lacks: {sorted(missing)}; "
                                  "add them to proto/contract/variable_meanings.h")

    def test_documents_every_exit_code(self):
        page = (REFERENCE / "environment.md").read_text(encoding="utf-8")
        header = (ROOT / "base" / "exit_code.h").read_text(encoding="utf-8")
        for code in re.findall(r"^\s*k\w+ = (\d+),", header, re.MULTILINE):
            self.assertRegex(page, rf"(?m)^\| {code} \|")
        for page in ("troubleshooting.md", "reference/environment.md"):
            prose, _ = split((ROOT / "docs" / page).read_text(encoding="utf-8"))
            text = "\n".join(line for _, line in prose)
            for code in re.findall(r"^\s*k\w+ = (\d+),", header, re.MULTILINE):
                self.assertRegex(text, rf"(?m)^\|[\d, ]*\b{code}\b", f"docs/{page}")


if __name__ == "__main__":
    unittest.main(verbosity=2, argv=[sys.argv[0], *sys.argv[1:]])
