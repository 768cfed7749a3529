// Reads YAML and JSON files of users as JSON, bounded in size and depth, with aliases expanded.
// Every error contains its place.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/error.h"

namespace dslaunch {

inline constexpr size_t kMaxTextFileBytes = 1u << 20;

// Longest path of a key whose place is recorded.
inline constexpr size_t kMaxPlacedPathBytes = 256;
// The places ("line:column") of a document's keys, by path, such as "launch.env" or
// "engine.optimizer.param_groups[0].lr". Contains only paths of up to kMaxPlacedPathBytes. Keys
// inside an expanded alias have no places.
using KeyPlaces = std::map<std::string, std::string>;

// How plain scalars are converted. kTyped: by type, as in YAML 1.2's core schema. kText: to
// strings, byte for byte, except that an empty scalar is null.
enum class Scalars { kTyped, kText };

// Parses a document. Stores the places of its keys in `places` unless that is null. Errors are
// kBadInput of the form "source:line:column: what".
Result<nlohmann::json> ParseYaml(std::string_view text, const std::string& source,
                                 Scalars scalars = Scalars::kTyped, KeyPlaces* places = nullptr);

// Reads a file of at most kMaxTextFileBytes. Returns kBadInput if the file cannot be read or is
// larger.
Result<std::string> ReadTextFile(const std::filesystem::path& path);

// Reads a file that the user did not name, such as ./dslaunch.yaml. Refuses the file if another
// user may have written it (OpenTrustedFile); the message explains how to name the file.
Result<std::string> ReadUnnamedTextFile(const std::filesystem::path& path);

// Returns whether the text can only be a JSON object.
bool BeginsJsonObject(std::string_view text);

// Returns `text` with blanks in place of // and /* */ comments, so that lines and columns do not
// change. Has no side effects.
std::string WithoutComments(std::string_view text);

// Returns WithoutComments(text) if `text` is a JSON object, else `text`.
std::string WithoutJsonComments(std::string_view text);

}  // namespace dslaunch
