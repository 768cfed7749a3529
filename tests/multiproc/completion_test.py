"""Tests TAB completion in real shells, and the man page, as the binary prints them."""

import os
import subprocess
import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from launcher_case import BUILD, DSLAUNCH, LauncherCase, main  # noqa: E402


def printed(*words):
    return subprocess.run([DSLAUNCH, "completion", *words], capture_output=True, text=True, check=True).stdout


class Completion(LauncherCase):
    def complete_in_bash(self, line):
        """Returns bash's completions at the end of `line`, which is split into words as readline does."""
        words = []
        for word in line.split(" "):
            for i, part in enumerate(word.split("=")):
                words += (["="] if i else []) + ([part] if part or not i else [])
        script = (printed("bash") + "compopt() { :; }\n" +
                  "COMP_WORDS=(" + " ".join(f"'{word}'" for word in words) + "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n"
                  "_dslaunch; printf '%s\\n' \"${COMPREPLY[@]}\"\n")
        return self.run_shell(["bash", "-c", script]).split("\n")[:-1]

    def run_shell(self, argv):
        path = f"{os.path.dirname(DSLAUNCH)}:{os.environ['PATH']}"
        shown = subprocess.run(argv, capture_output=True, text=True, cwd=self.folder,
                               env={**os.environ, "PATH": path, "HOME": str(self.folder)})
        self.assertEqual(("", 0), (shown.stderr, shown.returncode))
        return shown.stdout

    def test_bash_completes_options_values_and_files(self):
        (self.folder / "my script.py").write_text("")
        (self.folder / "logs").mkdir()
        for line, offered in (("dslaunch --num_", ["--num_proc", "--num_nodes", "--num_machines", "--num_gpus", "--num_accelerators",
                                                   "--num_processes"]),
                              ("dslaunch --rdzv-e", ["--rdzv-endpoint"]),
                              ("dslaunch --device ", ["auto", "cuda", "rocm", "xpu", "npu", "hpu", "mlu", "cpu"]),
                              ("dslaunch --device=c", ["cuda", "cpu"]),
                              ("dslaunch --device=", ["auto", "cuda", "rocm", "xpu", "npu", "hpu", "mlu", "cpu"]),
                              ("dslaunch --num_gpus 2 doc", ["doctor"]),
                              ("dslaunch train --st", ["--steps"]),
                              ("dslaunch --log_dir ", ["logs"]),
                              ("dslaunch my", ["my script.py"]),
                              ("dslaunch my.py --num_", [""])):
            with self.subTest(line=line):
                self.assertEqual(offered, self.complete_in_bash(line))

    def test_fish_completes_options_and_values(self):
        for line, offered in (("dslaunch --num-", ["--num-accelerators", "--num-gpus", "--num-machines", "--num-nodes", "--num-proc",
                                                   "--num-processes"]),
                              ("dslaunch --device ", ["auto", "cpu", "cuda", "hpu", "mlu", "npu", "rocm", "xpu"]),
                              ("dslaunch train --st", ["--steps"]),
                              ("dslaunch completion z", ["zsh"])):
            with self.subTest(line=line):
                script = printed("fish") + f"complete -C '{line}'\n"
                shown = self.run_shell(["fish", "--no-config", "-c", script])
                self.assertEqual(offered, sorted(row.split("\t")[0] for row in shown.splitlines()))

    def test_fish_ignores_completions_made_from_man_page(self):
        made = self.folder / "generated"
        made.mkdir()
        (made / "dslaunch.fish").write_text("complete -c dslaunch -l fanout\n")
        script = f"set -g fish_complete_path {made}\n" + printed("fish") + "complete -C 'dslaunch logs --f'\n"
        self.assertEqual("--follow", self.run_shell(["fish", "--no-config", "-c", script]).split("\t")[0])
        self.assertEqual(1, self.run_shell(["fish", "--no-config", "-c", script]).count("\n"))

    def test_zsh_completes_options_and_values(self):
        # Stand-ins for functions of zsh's own completion system.
        stubs = ("compdef() { : }; _files() { print -r -- files $@ }\n"
                 "_describe() { print -rl -- ${(P)2} }; compset() { : }\n")
        for words, offered in ((["--num-g"], ["--num-gpus:ranks on each node, not of all nodes; default\\: all its slots"]),
                               (["--device", "c"], ["cuda", "cpu"]),
                               (["--device=c"], ["--device=cuda", "--device=cpu"]),
                               (["-H", ""], ["files"]),
                               (["--log_dir", ""], ["files -/"])):
            with self.subTest(words=words):
                call = "words=(dslaunch " + " ".join(f"'{word}'" for word in words) + f"); CURRENT={len(words) + 1}\n"
                shown = self.run_shell(["zsh", "-f", "-c", stubs + printed("zsh") + call + "PREFIX=$words[-1]; _dslaunch"])
                self.assertEqual(offered, shown.splitlines())

    def test_installed_files_equal_printed_ones(self):
        for what, path in (("man", "man/man1/dslaunch.1"), ("bash", "bash-completion/completions/dslaunch"),
                           ("zsh", "zsh/site-functions/_dslaunch"), ("fish", "fish/vendor_completions.d/dslaunch.fish")):
            with self.subTest(what=what):
                self.assertEqual(printed(what), (BUILD / "share" / path).read_text())

    def test_man_page_is_valid(self):
        page = BUILD / "share/man/man1/dslaunch.1"
        shown = subprocess.run(["groff", "-man", "-ww", "-Tutf8", str(page)], capture_output=True, text=True, check=True)
        self.assertEqual("", shown.stderr)
        self.assertIn("every rank exited with 0", shown.stdout)


if __name__ == "__main__":
    main()
