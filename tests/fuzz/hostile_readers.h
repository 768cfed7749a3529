// The trainer's readers of files that are not trusted, each with what must hold whatever the bytes
// are: it accepts or throws TrainError kBadInput, and what it accepts holds together. Each returns
// whether the bytes were accepted, and throws std::logic_error where something does not hold.
#pragma once

#include <string>

namespace dslaunch {

bool ReadsSafetensors(const std::string& file);
// The text of a manifest without its first line, which holds a checksum and is put before it.
bool ReadsManifest(const std::string& text);
bool ReadsJson(const std::string& text);
// config.json and model.safetensors.index.json of a folder of weights.
bool ReadsHuggingFaceConfig(const std::string& text);
bool ReadsWeightIndex(const std::string& text);

}  // namespace dslaunch
