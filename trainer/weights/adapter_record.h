// Defines the record of adapters in a checkpoint: their settings, and the checksums of the frozen
// weights, which the checkpoint does not contain.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "trainer/config/lora_config.h"

namespace dslaunch {

struct AdapterRecord {
  LoraConfig lora;   // settings of the adapters, without init_weights
  std::string base;  // absolute path of the base weights; empty if they were drawn
  std::map<std::string, uint32_t> base_sums;  // CRC-32 of the bytes of each base tensor
};

std::string FormatAdapterRecord(const AdapterRecord& record);
// Parses a record that is not trusted. Throws kBadInput, naming `source`, if it is malformed.
AdapterRecord ParseAdapterRecord(const std::string& text, const std::string& source);

// Returns the checksums of the weights at `path` (WeightFiles), for every `parts`-th tensor from
// index `part` on. Reads all bytes of these tensors. Throws kBadInput if there are no weight files
// or a file is malformed, and kIo if a file cannot be read.
std::map<std::string, uint32_t> SumWeights(const std::string& path, int part, int parts);

// Returns the first difference between a saved record and a run's record, as a sentence with a
// hint; "" if the saved adapters fit the run. Pure.
std::string AdapterDifference(const AdapterRecord& saved, const AdapterRecord& own);

}  // namespace dslaunch
