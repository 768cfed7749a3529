// YAML and JSON files of users, read as JSON: bounded in size and depth, aliases expanded, and
// every error with its place.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/error.h"

namespace dslaunch {

inline constexpr size_t kMaxTextFileBytes = 1u << 20;

// Where the keys of a document stand, "line:column", by their paths: "launch.env",
// "engine.optimizer.param_groups[0].lr". Kept of paths up to kMaxPlacedPathBytes. What an alias
// stands for has no places of its own.
inline constexpr size_t kMaxPlacedPathBytes = 256;
using KeyPlaces = std::map<std::string, std::string>;

// How plain scalars are read: by their type, as YAML 1.2's core schema has it; or as text, byte for
// byte, but for an empty one, which is null.
enum class Scalars { kTyped, kText };

// Errors are kBadInput and read "source:line:column: what".
Result<nlohmann::json> ParseYaml(std::string_view text, const std::string& source,
                                 Scalars scalars = Scalars::kTyped, KeyPlaces* places = nullptr);

// The text of a file of at most kMaxTextFileBytes. Errors are kBadInput.
Result<std::string> ReadTextFile(const std::filesystem::path& path);

// The same of a file that the user did not name, such as ./dslaunch.yaml. It is refused where
// another user may have written it (OpenTrustedFile); the message says how to name it.
Result<std::string> ReadUnnamedTextFile(const std::filesystem::path& path);

// Whether it can only be meant as a JSON object.
bool BeginsJsonObject(std::string_view text);

// `text` with blanks in place of // and /* */ comments, so that lines and columns stay. Pure.
std::string WithoutComments(std::string_view text);

// The same where `text` is a JSON object, else `text`.
std::string WithoutJsonComments(std::string_view text);

}  // namespace dslaunch
