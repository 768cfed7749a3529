"""Contains configurations of accelerate, by name. They are rewritten from accelerate's and TRL's examples, with the
same keys."""

_HEAD = "compute_environment: LOCAL_MACHINE\ndebug: false\nmachine_rank: 0\nmain_training_function: main\nrdzv_backend: static\n"
_TAIL = "same_network: true\ntpu_env: []\ntpu_use_cluster: false\ntpu_use_sudo: false\nuse_cpu: false\n"


def _config(body, num_processes=8, num_machines=1):
    return f"{_HEAD}num_machines: {num_machines}\nnum_processes: {num_processes}\n{body}{_TAIL}"


CONFIGS = {
    "single_gpu": _config("distributed_type: 'NO'\nmixed_precision: bf16\n", 1),
    "multi_gpu": _config("distributed_type: MULTI_GPU\ngpu_ids: all\nmixed_precision: fp16\n"),
    "multi_node": _config("distributed_type: MULTI_GPU\nmixed_precision: fp16\nmain_process_ip: 10.0.0.1\n"
                          "main_process_port: 29501\n", 16, 2),
    "some_gpus": _config("distributed_type: MULTI_GPU\ngpu_ids: 1,3\nmixed_precision: bf16\n", 2),
    "dynamo": _config("distributed_type: MULTI_GPU\nmixed_precision: bf16\ndynamo_config:\n"
                      "  dynamo_backend: INDUCTOR\n  dynamo_mode: max-autotune\n  dynamo_use_dynamic: true\n"),
    "cpu": _config("distributed_type: MULTI_CPU\nmixed_precision: 'no'\n").replace("use_cpu: false", "use_cpu: true"),
    "fsdp1": _config("""distributed_type: FSDP
mixed_precision: bf16
fsdp_config:
  fsdp_activation_checkpointing: false
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_backward_prefetch: BACKWARD_PRE
  fsdp_cpu_ram_efficient_loading: true
  fsdp_forward_prefetch: true
  fsdp_offload_params: false
  fsdp_reshard_after_forward: FULL_SHARD
  fsdp_state_dict_type: FULL_STATE_DICT
  fsdp_sync_module_states: true
  fsdp_use_orig_params: true
  fsdp_version: 1
"""),
    "fsdp2": _config("""distributed_type: FSDP
mixed_precision: bf16
fsdp_config:
  fsdp_activation_checkpointing: true
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_cpu_ram_efficient_loading: true
  fsdp_offload_params: true
  fsdp_reshard_after_forward: true
  fsdp_state_dict_type: SHARDED_STATE_DICT
  fsdp_transformer_layer_cls_to_wrap: LlamaDecoderLayer
  fsdp_version: 2
"""),
    "context_parallel": _config("""distributed_type: FSDP
mixed_precision: bf16
fsdp_config:
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_reshard_after_forward: true
  fsdp_version: 2
parallelism_config:
  parallelism_config_dp_replicate_size: 1
  parallelism_config_dp_shard_size: 1
  parallelism_config_tp_size: 1
  parallelism_config_cp_size: 2
  parallelism_config_cp_comm_strategy: alltoall
""", 2),
    "deepspeed_zero3": _config("""distributed_type: DEEPSPEED
mixed_precision: bf16
deepspeed_config:
  deepspeed_multinode_launcher: standard
  offload_optimizer_device: cpu
  offload_param_device: none
  gradient_accumulation_steps: 4
  gradient_clipping: 1.0
  zero3_init_flag: true
  zero3_save_16bit_model: true
  zero_stage: 3
"""),
    "deepspeed_file": _config("""distributed_type: DEEPSPEED
deepspeed_config:
  deepspeed_config_file: ds.json
  zero3_init_flag: false
"""),
    "megatron": _config("""distributed_type: MEGATRON_LM
mixed_precision: bf16
megatron_lm_config:
  megatron_lm_gradient_clipping: 1.0
  megatron_lm_num_micro_batches: 2
  megatron_lm_pp_degree: 2
  megatron_lm_tp_degree: 4
  megatron_lm_sequence_parallelism: true
"""),
}
