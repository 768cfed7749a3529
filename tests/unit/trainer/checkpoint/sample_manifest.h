// A manifest with something in every field.
#pragma once

#include "trainer/checkpoint/manifest.h"

namespace dslaunch {

inline Manifest SampleManifest() {
  Manifest m;
  m.serial = 4;
  m.run_id = "run";
  m.job_id = "job";
  m.position = {120, 1, 512};
  m.optimizer = "Lamb";
  m.loss_scaler = {32768, 118, 40, 2};
  m.seed = 7;
  m.train_samples = 60000;
  m.samples_seen = 30720;
  m.world_size = 2;
  m.train_batch_size = 256;
  m.saved_ms = 1'700'000'000'123;
  m.shuffle = false;
  m.micro_steps = 241;
  m.skipped_steps = 3;
  m.scheduled_updates = 116;
  m.learning_rates = {0.001, 0.25};
  m.zero_stage = 2;
  m.dtype = "bf16";
  m.model = R"({"type":"mlp"})";
  m.client_state = {{"epoch", "3"}, {"note", "\u00fc \"quoted\""}};
  m.files = {{"a.safetensors", {100, 0xfedcba98}}, {"b.safetensors", {50, 1}}};
  m.tensors = {{"fc.weight", "F32", {2, 3}, {{0, 4, "a.safetensors"}, {4, 6, "b.safetensors"}}},
               {"step", "I64", {}, {{0, 1, "a.safetensors"}}}};
  return m;
}

}  // namespace dslaunch
