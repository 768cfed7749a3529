// Plans the checkpoints whose paths are on standard input, one per line. Prints a line of JSON for
// each: the plan's other contents and {"tensors": {name: [dtype, shape, CRC-32 of its bytes]}}, or
// {"refused": reason}. A line may also be {"path": ..., "key": ..., "prefix": ...}. With
// "distributed": FOLDER, the checkpoint is also written into FOLDER in PyTorch's distributed form.
#include <iostream>
#include <nlohmann/json.hpp>

#include "trainer/base/crc32.h"
#include "trainer/base/train_error.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/foreign/foreign_checkpoint.h"
#include "trainer/foreign/foreign_reader.h"
#include "trainer/foreign/write_distributed.h"
#include "trainer/shards/shards.h"

namespace dslaunch {
namespace {

nlohmann::json Tensors(const Checkpoint& checkpoint) {
  nlohmann::json tensors = nlohmann::json::object();
  for (const TensorRecord& tensor : checkpoint.manifest.tensors) {
    const Shard whole = Shard::Whole(NumElements(tensor.shape).value());
    const size_t width = DtypeBytes(tensor.dtype).value();
    std::string bytes(static_cast<size_t>(whole.stop) * width, '\0');
    for (const TensorSlice& slice : tensor.slices) {
      checkpoint.reader->Read(tensor, slice, whole, bytes.data());
    }
    const bool is_new = tensors
                            .emplace(tensor.name, nlohmann::json{tensor.dtype, tensor.shape,
                                                                 Crc32(bytes.data(), bytes.size())})
                            .second;
    if (!is_new) RefuseInput("two tensors are named " + tensor.name);
  }
  return tensors;
}

void WriteDistributedTo(const std::string& out, const Checkpoint& checkpoint) {
  const auto read = [&](const TensorRecord& tensor, int64_t start, int64_t stop, void* to) {
    const Shard wanted = Slice(Shard::Whole(NumElements(tensor.shape).value()), start, stop);
    for (const TensorSlice& slice : tensor.slices) {
      checkpoint.reader->Read(tensor, slice, wanted, to);
    }
  };
  WriteDistributed(checkpoint.manifest, read, out, [](uint64_t, uint64_t) {});
}

nlohmann::json Show(const std::string& line) {
  try {
    const bool has_options = line.starts_with('{');
    const nlohmann::json asked =
        has_options ? nlohmann::json::parse(line) : nlohmann::json{{"path", line}};
    const std::string path = asked["path"];
    if (!WhatIs(path)) return {{"refused", "not a checkpoint"}};
    ForeignCheckpoint plan = PlanForeign(path, {asked.value("key", ""), asked.value("prefix", "")});
    const size_t places = plan.places.size();
    nlohmann::json result = {{"program", plan.program},
                             {"aliases", plan.aliases},
                             {"notes", plan.notes},
                             {"missing", plan.missing}};
    const Checkpoint checkpoint = WithReader(std::move(plan));
    const Manifest& manifest = checkpoint.manifest;
    if (asked.contains("distributed")) WriteDistributedTo(asked["distributed"], checkpoint);
    result["places"] = places;
    result["tag"] = checkpoint.tag;
    result["step"] = manifest.position.step;
    result["samples_seen"] = manifest.samples_seen;
    result["skipped_steps"] = manifest.skipped_steps;
    result["micro_steps"] = manifest.micro_steps;
    result["train_batch_size"] = manifest.train_batch_size;
    result["optimizer_updates"] = manifest.optimizer_updates;
    result["scheduled_updates"] = manifest.scheduled_updates;
    result["optimizer"] = manifest.optimizer;
    result["learning_rates"] = manifest.learning_rates;
    result["loss_scaler"] = {manifest.loss_scaler.scale, manifest.loss_scaler.iteration,
                             manifest.loss_scaler.last_overflow, manifest.loss_scaler.hysteresis};
    result["world_size"] = manifest.world_size;
    result["zero_stage"] = manifest.zero_stage;
    result["dtype"] = manifest.dtype;
    result["client_state"] = manifest.client_state;
    for (const FileRecord& file : manifest.files) result["files"].push_back(file.name);
    result["tensors"] = Tensors(checkpoint);
    return result;
  } catch (const TrainError& error) {
    return {{"refused", error.what()}};
  }
}

}  // namespace
}  // namespace dslaunch

int main() {
  std::string line;
  while (std::getline(std::cin, line)) std::cout << dslaunch::Show(line).dump() << std::endl;
}
