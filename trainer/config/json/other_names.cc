#include "trainer/config/json/other_names.h"

namespace dslaunch {
namespace {

struct OtherName {
  std::string_view word;
  std::string_view here;
};

// Names in other programs, with the key in dslaunch. A word may stand for several keys, each of
// which is known in a different section.
constexpr OtherName kOtherNames[] = {
    // Names of schedulers and optimizers.
    {"SGDR", "CosineAnnealingWarmRestarts"},
    {"OneCycleLR", "OneCycle"},
    {"cosine", "WarmupCosineLR"},
    {"linear", "WarmupDecayLR"},
    {"constant_with_warmup", "WarmupLR"},
    {"FusedAdam", "Adam"},
    {"DeepSpeedCPUAdam", "Adam"},
    {"FusedAdamW", "AdamW"},
    {"adamw_torch", "AdamW"},
    {"FusedLamb", "Lamb"},
    {"FusedLion", "Lion"},
    {"learning_rate", "lr"},
    {"warmup_steps", "warmup_num_steps"},
    {"num_warmup_steps", "warmup_num_steps"},
    {"total_steps", "total_num_steps"},
    {"num_training_steps", "total_num_steps"},
    {"max_grad_norm", "gradient_clipping"},
    {"grad_clip", "gradient_clipping"},
    {"clip_grad_norm", "gradient_clipping"},
    {"batch_size", "train_batch_size"},
    {"global_batch_size", "train_batch_size"},
    {"per_device_train_batch_size", "train_micro_batch_size_per_gpu"},
    {"micro_batch_size", "train_micro_batch_size_per_gpu"},
    // Names of the profiler's columns.
    {"cuda_time_total", "device_time"},
    {"cpu_time_total", "total_time"},
    {"device_time_total", "device_time"},
    {"self_cuda_time_total", "device_time"},
    {"self_cpu_time_total", "self_time"},
    {"self_device_time_total", "device_time"},
    {"cuda_memory_usage", "memory"},
    {"cpu_memory_usage", "memory"},
    {"self_cuda_memory_usage", "memory"},
    {"self_cpu_memory_usage", "memory"},
    {"count", "calls"},
    // Keys of the section "run".
    {"num_epochs", "epochs"},
    {"max_epochs", "epochs"},
    {"num_train_epochs", "epochs"},
    {"max_steps", "steps"},
    {"num_steps", "steps"},
    {"train_steps", "steps"},
    {"total_steps", "steps"},
    {"eval_steps", "eval_every"},
    {"eval_interval", "eval_every"},
    {"save_steps", "save_every"},
    {"save_interval", "save_every"},
    {"output_dir", "checkpoint_dir"},
    {"save_dir", "checkpoint_dir"},
    {"save_total_limit", "keep_checkpoints"},
    {"resume_from_checkpoint", "resume_from"},
    {"gpu", "cuda"},
    // Keys of the sections "model" and "data".
    {"num_layers", "n_layer"},
    {"num_hidden_layers", "n_layer"},
    {"hidden_size", "n_embd"},
    {"d_model", "n_embd"},
    {"num_attention_heads", "n_head"},
    {"num_heads", "n_head"},
    {"max_position_embeddings", "n_positions"},
    {"context_length", "n_positions"},
    {"context_length", "block_size"},
    {"seq_length", "block_size"},
    {"num_labels", "num_classes"},
    {"n_classes", "num_classes"},
    {"target_column", "label_column"},
    {"mnist", "idx"},
    {"fashion_mnist", "idx"},
    {"cifar10", "cifar"},
    {"cifar100", "cifar"},
    {"imagefolder", "image_folder"},
    {"images", "image_folder"},
    {"imagenet", "image_folder"},
    {"crop_size", "image_size"},
    {"resize", "image_size"},
};

struct Advice {
  std::string_view key;
  std::string_view instead;
};

constexpr Advice kAdvice[] = {
    {"steps_per_epoch",
     "is not a known key: the steps of an epoch follow from the data and train_batch_size; set "
     "run.steps for a number of steps"},
    {"batch_size",
     "is not a known key here: the batch size is engine.train_batch_size, or "
     "engine.train_micro_batch_size_per_gpu for each rank"},
    {"learning_rate", "is not a known key here; set engine.optimizer.params.lr"},
    {"lr", "is not a known key here; set engine.optimizer.params.lr"},
    {"num_workers", "is not a known key; data.prefetch reads batches ahead"},
};

}  // namespace

std::optional<std::string> NameHere(std::string_view word, const std::set<std::string>& known) {
  for (const OtherName& other : kOtherNames) {
    if (other.word == word && known.contains(std::string(other.here)))
      return std::string(other.here);
  }
  return std::nullopt;
}

std::string_view AdviceInstead(std::string_view key) {
  for (const Advice& advice : kAdvice) {
    if (advice.key == key) return advice.instead;
  }
  return "";
}

}  // namespace dslaunch
