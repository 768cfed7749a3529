"""Prints the configuration keys that the installed DeepSpeed reads, found by calling its own readers: its version, and
{section: {key: default}}, where "" is the top level.

tests/unit/trainer/config/deepspeed_keys.json is this output:
.deps/deepspeed/bin/python3 tests/trainer/deepspeed_keys.py > tests/unit/trainer/config/deepspeed_keys.json"""

import contextlib
import json
import sys

# Sections that DeepSpeed reads only if they exist.
SECTIONS = ("activation_checkpointing", "checkpoint", "checkpoint.parallel_write", "data_types", "flops_profiler", "pipeline",
            "timers", "torch_autocast", "zero_optimization")
# Classes of DeepSpeed whose fields are the keys of a section.
MODELS = {"CSV": "csv_monitor", "Comet": "comet", "CommsLogger": "comms_logger", "Compile": "compile",
          "DeepSpeedBF16": "bf16", "DeepSpeedFP16": "fp16", "DeepSpeedZero": "zero_optimization", "HybridEngine": "hybrid_engine",
          "DeepSpeedZeroOffloadOptimizer": "zero_optimization.offload_optimizer",
          "DeepSpeedThroughputTimer": "timers.throughput",
          "DeepSpeedZeroOffloadParam": "zero_optimization.offload_param", "TPTraining": "tensor_parallel",
          "TensorBoard": "tensorboard", "Wandb": "wandb"}


class Asked(dict):
    """A dict that records in found[path] each requested key, with the default that the reader passes."""

    def __init__(self, path, found, items=()):
        super().__init__(items)
        self.keys_asked = found.setdefault(path, {})

    def note(self, key, default=None):
        if self.keys_asked.get(key) is None:
            self.keys_asked[key] = default

    def get(self, key, default=None):
        self.note(key, default)
        return super().get(key, default)

    def __contains__(self, key):
        self.note(key)
        return super().__contains__(key)

    def keys(self):
        return self  # makes `key in keys()` call the overridden __contains__


def plain(value):
    """Returns a default as JSON; None if JSON cannot represent it."""
    try:
        return json.loads(json.dumps(getattr(value, "value", value)))
    except TypeError:
        return None


def read():
    import deepspeed
    from deepspeed.runtime.config import DeepSpeedConfig, get_pipeline_config
    from deepspeed.runtime.config_utils import DeepSpeedConfigModel
    found = {}
    top = Asked("", found, {"train_batch_size": 1})
    for path in SECTIONS:
        *parents, name = path.split(".")
        section = top
        for parent in parents:
            section = section[parent]
        section.note(name)
        section[name] = Asked(path, found)
    DeepSpeedConfig(top)
    found["pipeline"] = get_pipeline_config({})
    models = DeepSpeedConfigModel.__subclasses__()
    for model in models:
        models.extend(model.__subclasses__())
        path = MODELS.get(model.__name__.removesuffix("Config"))
        if path is None or ".inference." in model.__module__:
            continue
        for name, field in model.model_fields.items():
            default = field.get_default(call_default_factory=True)
            default = None if isinstance(default, DeepSpeedConfigModel) else plain(default)
            for key in {name, field.alias or name}:
                found.setdefault(path, {})[key] = default
    keys = {path: dict(sorted((key, plain(value)) for key, value in found[path].items())) for path in sorted(found)}
    return {"deepspeed": deepspeed.__version__, "keys": keys}


if __name__ == "__main__":
    with contextlib.redirect_stdout(sys.stderr):  # because DeepSpeed logs to stdout
        answer = read()
    print(json.dumps(answer, indent=1))
