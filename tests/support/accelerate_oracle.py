"""Records the environment of ranks under `accelerate launch`, and the changes that dslaunch's module makes to it.

  python3 accelerate_oracle.py MODULE_FOLDER OUT     runs each CONFIG.yaml of this folder: 2 ranks, 1 machine

Run it with a Python that has accelerate. It writes OUT/NAME.launched.RANK.json, the environment of each rank of
`accelerate launch`, and OUT/NAME.changes.json, the changes that python/dslaunch/accelerate_env.py makes to this
process's environment. accelerate is imported once, and each configuration runs in a fork.
"""

import json
import os
import pathlib
import sys
import traceback

REPORT = """import json, os
rank = os.environ.get("RANK", "0")
json.dump(dict(os.environ), open(os.environ["REPORT"] + "." + rank + ".json", "w"))
"""


def in_fork(work):
    if (child := os.fork()) == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def launch(config, out):
    from accelerate.commands import launch
    os.environ["REPORT"] = str(out / f"{config.stem}.launched")
    sys.argv = ["accelerate-launch", "--config_file", str(config), "--num_processes", "2", "--num_machines", "1",
                "--main_process_port", "0", str(out / "report.py")]
    launch.main()


def change(config, out):
    import accelerate_env
    changes = accelerate_env.changes(config.read_text(), str(config), 1, 0, 2)
    (out / f"{config.stem}.changes.json").write_text(json.dumps(changes))


def main():
    sys.path.insert(0, str(pathlib.Path(sys.argv[1], "dslaunch")))
    out = pathlib.Path(sys.argv[2])
    (out / "report.py").write_text(REPORT)
    import accelerate.commands.launch  # noqa: F401
    import torch.distributed.run  # noqa: F401
    failed = [(config.stem, work.__name__) for config in sorted(pathlib.Path().glob("*.yaml")) for work in (launch, change)
              if in_fork(lambda: work(config, out)) != 0]
    if failed:
        sys.exit(f"failed: {failed}")


main()
