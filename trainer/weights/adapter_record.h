// The record of adapters in a checkpoint: their settings, and the checksums of the frozen weights,
// which the checkpoint does not hold.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "trainer/config/lora_config.h"

namespace dslaunch {

struct AdapterRecord {
  LoraConfig lora;   // without init_weights
  std::string base;  // absolute path of the file or folder of the weights; "": they were drawn
  std::map<std::string, uint32_t> base_sums;  // CRC-32 of the bytes of each tensor there
};

std::string FormatAdapterRecord(const AdapterRecord& record);
// Parses text that is not trusted. Throws kBadInput, naming `source`.
AdapterRecord ParseAdapterRecord(const std::string& text, const std::string& source);

// Returns the checksums of the weights at `path` (WeightFiles), of every `parts`-th tensor from
// number `part` on. Reads all of these bytes. Throws the errors of WeightFiles and SafetensorsFile.
std::map<std::string, uint32_t> SumWeights(const std::string& path, int part, int parts);

// Returns the first difference between what was saved and what a run has, as a sentence with
// the remedy; "" if the adapters of one fit the other. Pure.
std::string AdapterDifference(const AdapterRecord& saved, const AdapterRecord& own);

}  // namespace dslaunch
