"""Starts a program in the environment of `accelerate launch --config_file`, for dslaunch --accelerate_config.

    python3 -c SOURCE_OF_THIS_FILE PROGRAM ARGUMENT...

Each rank of `dslaunch --accelerate_config FILE` runs this before PROGRAM, an absolute path. The front end sends
the text and the path of FILE in two variables, which PROGRAM does not get. accelerate's own code interprets the
text. The rank keeps the place in the job that dslaunch gave it. This process then becomes PROGRAM. Needs only the
standard library and accelerate.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from typing import Any, Mapping, NoReturn

TEXT_VARIABLE = "DSLAUNCH_ACCELERATE_CONFIG"
FILE_VARIABLE = "DSLAUNCH_ACCELERATE_CONFIG_FILE"
EXIT_BAD_INPUT = 65  # equal to dslaunch's exit code for bad input

_PLACE = ("RANK", "WORLD_SIZE", "LOCAL_", "GROUP_", "ROLE_", "CROSS_", "MASTER_", "TORCHELASTIC_", "DSLAUNCH_")
_NEEDED = ("launch_command_parser", "_validate_launch_command", "prepare_simple_launcher_cmd_env",
           "prepare_multi_gpu_env", "prepare_deepspeed_cmd_env", "is_deepspeed_available")


class Refusal(Exception):
    """The configuration cannot be applied. The text is the reason."""


def _launch_module() -> Any:
    try:
        import accelerate
        from accelerate.commands import launch
    except ImportError as error:
        raise Refusal(f"{sys.executable} cannot import accelerate ({error}); install it for this interpreter "
                      f"({sys.executable} -m pip install accelerate)") from error
    missing = [name for name in _NEEDED if not callable(getattr(launch, name, None))]
    if missing:
        raise Refusal(f"accelerate {accelerate.__version__} of {sys.executable} has no {', '.join(missing)} in "
                      "accelerate.commands.launch; install another version (1.15 is tested)")
    return launch


def _prepared(launch: Any, path: str, num_nodes: int, node_rank: int, num_ranks: int) -> Mapping[str, str]:
    """Returns the environment that accelerate's launcher would give to processes of this node, for a made-up place."""
    args = launch.launch_command_parser().parse_args([
        "--config_file", path, "--num_processes", str(num_ranks), "--num_machines", str(num_nodes),
        "--machine_rank", str(node_rank), "--main_process_ip", "127.0.0.1", "--main_process_port", "0", "program"])
    args, defaults, is_precision_of_file = launch._validate_launch_command(args)
    if args.tpu or defaults.compute_environment != "LOCAL_MACHINE":
        raise Refusal("it is for TPUs or SageMaker, which dslaunch does not start; use accelerate launch")
    if args.use_deepspeed and not args.cpu:
        if not launch.is_deepspeed_available():
            raise Refusal(f"it asks for DeepSpeed, which is not installed for {sys.executable}; install it there")
        fields = [*defaults.deepspeed_config, *(["mixed_precision"] if is_precision_of_file else [])]
        args.deepspeed_fields_from_accelerate_config = ",".join(fields)
        environment = launch.prepare_deepspeed_cmd_env(args)[1]
    elif (args.use_fsdp or args.use_megatron_lm or args.multi_gpu) and not args.cpu:
        environment = launch.prepare_multi_gpu_env(args)
    else:
        args.mpirun_hostfile = None  # dslaunch replaces mpirun
        return launch.prepare_simple_launcher_cmd_env(args)[1]
    supports_p2p = getattr(launch, "check_cuda_p2p_ib_support", lambda: True)
    return environment if supports_p2p() else {"NCCL_P2P_DISABLE": "1", "NCCL_IB_DISABLE": "1", **environment}


def changes(text: str, name: str, num_nodes: int, node_rank: int, num_ranks: int) -> dict[str, str]:
    """Returns the environment variables that accelerate adds or changes for the configuration `text`.

    Leaves out the variables of a rank's place. The ending of `name`, the file's name, determines whether the text
    is JSON. Raises Refusal if accelerate cannot apply the configuration.
    """
    before = dict(os.environ)
    launch = _launch_module()
    with tempfile.TemporaryDirectory(prefix="dslaunch-accelerate-") as folder:
        path = os.path.join(folder, os.path.basename(name))
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        try:
            after = _prepared(launch, path, num_nodes, node_rank, num_ranks)
        except Refusal:
            raise
        except (Exception, SystemExit) as error:  # argparse raises SystemExit
            why = str(error).replace(path, name)
            raise Refusal(f"accelerate refuses it: {type(error).__name__}: {why}") from error
    return {key: value for key, value in after.items() if before.get(key) != value and not key.startswith(_PLACE)}


def _become(program: list[str], inherited: set[str]) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    for descriptor in set(os.listdir("/proc/self/fd")) - inherited:
        try:
            os.set_inheritable(int(descriptor), False)
        except OSError:
            pass  # the descriptor by which the folder was listed is already closed
    # Python ignores these signals, and the program would inherit an ignored signal.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    os.execve(program[0], program, os.environ)


def main(program: list[str]) -> NoReturn:
    inherited = set(os.listdir("/proc/self/fd"))
    if sys.path and sys.path[0] == "":
        del sys.path[0]  # otherwise a file in the working directory could be imported instead of accelerate
    text, name = os.environ.pop(TEXT_VARIABLE), os.environ.pop(FILE_VARIABLE)
    try:
        os.environ.update(changes(text, name, int(os.environ["GROUP_WORLD_SIZE"]), int(os.environ["GROUP_RANK"]),
                                  int(os.environ["WORLD_SIZE"])))
    except Refusal as refusal:
        print(f"dslaunch: --accelerate_config {name}: {refusal}", file=sys.stderr, flush=True)
        sys.exit(EXIT_BAD_INPUT)
    _become(program, inherited)


if __name__ == "__main__":
    main(sys.argv[1:])
