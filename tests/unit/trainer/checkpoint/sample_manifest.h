// Makes sample manifests in which every field has a value.
#pragma once

#include "trainer/checkpoint/manifest.h"
#include "trainer/shards/shards.h"

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
  m.next_rates = {0.0005, 0.125};
  m.zero_stage = 2;
  m.pipeline_stages = 3;
  m.loss = 0.75;
  m.dtype = "bf16";
  m.model = R"({"type":"mlp"})";
  m.client_state = {{"epoch", "3"}, {"note", "\u00fc \"quoted\""}};
  m.files = {{"a.safetensors", {100, 0xfedcba98}}, {"b.safetensors", {50, 1}}};
  const Shard weight = Shard::Whole(6);
  m.tensors = {{"fc.weight",
                "F32",
                {2, 3},
                {{Slice(weight, 0, 4), "a.safetensors"}, {Slice(weight, 4, 6), "b.safetensors"}}},
               {"step", "I64", {}, {{Shard::Whole(1), "a.safetensors"}}}};
  return m;
}

// Returns SampleManifest with a tensor in two column parts, the second of which is stored in two
// slices.
inline Manifest SampleManifestWithCuts() {
  Manifest m = SampleManifest();
  m.files.push_back({"c.safetensors", {50, 2}});
  const Shard left = CutShard({2, 3}, 1, 0, 1), right = CutShard({2, 3}, 1, 1, 3);
  m.tensors[0].slices = {{left, "a.safetensors"},
                         {Slice(right, 0, 3), "b.safetensors"},
                         {Slice(right, 3, 4), "c.safetensors"}};
  return m;
}

}  // namespace dslaunch
