"""TAB completion in the shells themselves, and the man page, as the binary prints them."""

import os
import shutil
import subprocess
import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from launcher_case import BUILD, DSLAUNCH, LauncherCase, main  # noqa: E402


def printed(*words):
    return subprocess.run([DSLAUNCH, "completion", *words], capture_output=True, text=True, check=True).stdout


class Completion(LauncherCase):
    def complete_in_bash(self, line):
        """What bash offers at the end of `line`; it cuts words where readline does."""
        words = []
        for word in line.split(" "):
            for i, part in enumerate(word.split("=")):
                words += (["="] if i else []) + ([part] if part or not i else [])
        script = (printed("bash") + "compopt() { :; }\n" +
                  "COMP_WORDS=(" + " ".join(f"'{word}'" for word in words) + "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n"
                  "_dslaunch; printf '%s\\n' \"${COMPREPLY[@]}\"\n")
        path = f"{os.path.dirname(DSLAUNCH)}:{os.environ['PATH']}"
        shown = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True, cwd=self.folder,
                               env={**os.environ, "PATH": path})
        self.assertEqual("", shown.stderr)
        return shown.stdout.split("\n")[:-1]

    def test_bash(self):
        (self.folder / "my script.py").write_text("")
        (self.folder / "logs").mkdir()
        for line, offered in (("dslaunch --num_", ["--num_nodes", "--num_gpus", "--num_accelerators"]),
                              ("dslaunch --rdzv-e", ["--rdzv-endpoint"]),
                              ("dslaunch --device ", ["auto", "cuda", "cpu"]),
                              ("dslaunch --device=c", ["cuda", "cpu"]),
                              ("dslaunch --device=", ["auto", "cuda", "cpu"]),
                              ("dslaunch --num_gpus 2 doc", ["doctor"]),
                              ("dslaunch train --st", ["--steps"]),
                              ("dslaunch --log_dir ", ["logs"]),
                              ("dslaunch my", ["my script.py"]),
                              ("dslaunch my.py --num_", [""])):
            with self.subTest(line=line):
                self.assertEqual(offered, self.complete_in_bash(line))

    def test_the_other_shells_take_their_scripts(self):
        for shell in ("bash", "zsh", "fish"):
            if shutil.which(shell) is None:
                continue
            with self.subTest(shell=shell):
                script = self.folder / shell
                script.write_text(printed(shell))
                subprocess.run([shell, "-n", str(script)], check=True)

    def test_what_is_installed_is_what_is_printed(self):
        for what, path in (("man", "man/man1/dslaunch.1"), ("bash", "bash-completion/completions/dslaunch"),
                           ("zsh", "zsh/site-functions/_dslaunch"), ("fish", "fish/vendor_completions.d/dslaunch.fish")):
            with self.subTest(what=what):
                self.assertEqual(printed(what), (BUILD / "share" / path).read_text())

    def test_the_man_page_is_valid(self):
        page = BUILD / "share/man/man1/dslaunch.1"
        shown = subprocess.run(["man", "--warnings", "-l", str(page)], capture_output=True, text=True, check=True,
                               env={**os.environ, "MANWIDTH": "100", "LC_ALL": "C.UTF-8"})
        self.assertEqual("", shown.stderr)
        self.assertIn("--hostfile FILE", shown.stdout)


if __name__ == "__main__":
    main()
