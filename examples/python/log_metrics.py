"""Logs the metrics of a training to MLflow or Weights & Biases, from the file that dslaunch's trainer writes.

    dslaunch train RECIPE --metrics_jsonl metrics.jsonl
    python log_metrics.py mlflow metrics.jsonl --follow     # beside it; or afterwards, without --follow
    python log_metrics.py wandb metrics.jsonl               # WANDB_MODE=offline keeps all on this machine

The service is set up as for any other program, by its own variables (MLFLOW_TRACKING_URI, WANDB_PROJECT, ...). With
--follow the file is read on until its writer has been silent for --patience seconds.
"""

import argparse
import importlib
import json
import pathlib
import time


def numbers(line):
    """The numbers of one line of the file, flat: {"memory": {"parameters": 7}} is memory/parameters."""
    flat = {}
    for name, value in line.items():
        if name in ("step", "steps", "attempt", "epoch") or isinstance(value, (str, bool)) or value is None:
            continue
        if isinstance(value, dict):
            flat.update({f"{name}/{inner}": number for inner, number in numbers(value).items()})
        else:
            flat[name] = float(value) if isinstance(value, int) else value
    return flat


def lines(path, follow, patience_s):
    """The whole lines of the file, and those that are added to it."""
    silent_since = time.monotonic()
    with open(path, encoding="utf-8") as file:
        rest = ""
        while True:
            text = file.readline()
            if text:
                silent_since = time.monotonic()
                rest += text
                if rest.endswith("\n"):
                    yield json.loads(rest)
                    rest = ""
                continue
            if not follow or time.monotonic() - silent_since > patience_s:
                return
            time.sleep(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("service", choices=["mlflow", "wandb"])
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--follow", action="store_true")
    parser.add_argument("--patience", type=float, default=600, metavar="SECONDS")
    options = parser.parse_args()
    service = importlib.import_module(options.service)
    is_mlflow = options.service == "mlflow"
    if is_mlflow:
        service.start_run()
    else:
        service.init()
    for line in lines(options.file, options.follow, options.patience):
        logged = numbers(line)
        if not logged:
            continue
        if is_mlflow:
            service.log_metrics(logged, step=line["step"])
        else:
            service.log(logged, step=line["step"])
    if is_mlflow:
        service.end_run()
    else:
        service.finish()


if __name__ == "__main__":
    main()
