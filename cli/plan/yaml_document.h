// Reads users' YAML and JSON files as JSON, bounded in size and depth, with aliases expanded. Every
// error has its place.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/error.h"

namespace dslaunch {

inline constexpr size_t kMaxTextFileBytes = 1u << 20;

// The places ("line:column") of a document's keys, by path: "launch.env",
// "engine.optimizer.param_groups[0].lr". Has paths up to kMaxPlacedPathBytes. Keys inside an
// expanded alias have no places.
inline constexpr size_t kMaxPlacedPathBytes = 256;
using KeyPlaces = std::map<std::string, std::string>;

// How plain scalars are read. kTyped: by type, as in YAML 1.2's core schema. kText: as text,
// byte for byte, except that an empty one is null.
enum class Scalars { kTyped, kText };

// Parses a document. Errors are kBadInput of the form "source:line:column: what".
Result<nlohmann::json> ParseYaml(std::string_view text, const std::string& source,
                                 Scalars scalars = Scalars::kTyped, KeyPlaces* places = nullptr);

// Reads a file of at most kMaxTextFileBytes. Errors are kBadInput.
Result<std::string> ReadTextFile(const std::filesystem::path& path);

// Reads a file that the user did not name, such as ./dslaunch.yaml. It is refused if another user
// may have written it (OpenTrustedFile); the message explains how to name it.
Result<std::string> ReadUnnamedTextFile(const std::filesystem::path& path);

// Whether the text can only be a JSON object.
bool BeginsJsonObject(std::string_view text);

// Returns `text` with blanks in place of // and /* */ comments, so that lines and columns do not
// change. Pure.
std::string WithoutComments(std::string_view text);

// Returns WithoutComments(text) if `text` is a JSON object, else `text`.
std::string WithoutJsonComments(std::string_view text);

}  // namespace dslaunch
