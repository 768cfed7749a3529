// Defines option targets that many options share: pointers to members that store a value, with the
// readers that check the value. `member` is a member of LaunchOptions, TrainOptions, TuneOptions,
// Draft, JobCommand, HostfileCommand, CheckpointCommand, DataCommand, RecipeCommand or
// KubernetesJob.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cli/options/option_table.h"
#include "cli/options/option_values.h"
#include "cli/options/parsed_flags.h"

namespace dslaunch {

template <class T>
T& Field(ParsedFlags& flags, T ParsedFlags::*member) {
  return flags.*member;
}
template <class T>
T& Field(ParsedFlags& flags, T LaunchOptions::*member) {
  return flags.options.*member;
}
template <class T>
T& Field(ParsedFlags& flags, T TrainOptions::*member) {
  return flags.options.train.*member;
}
template <class T>
T& Field(ParsedFlags& flags, T TuneOptions::*member) {
  return flags.options.tune.*member;
}
template <class T>
T& Field(ParsedFlags& flags, T JobCommand::*member) {
  return flags.job.*member;
}
template <class T>
T& Field(ParsedFlags& flags, T HostfileCommand::*member) {
  return flags.hostfile.*member;
}
template <class T>
T& Field(ParsedFlags& flags, T CheckpointCommand::*member) {
  return flags.checkpoint.*member;
}
template <class T>
T& Field(ParsedFlags& flags, T DataCommand::*member) {
  return flags.data.*member;
}
template <class T>
T& Field(ParsedFlags& flags, T RecipeCommand::*member) {
  return flags.recipe.*member;
}

template <class T>
T& Field(ParsedFlags& flags, T KubernetesJob::*member) {
  return flags.manifest.job.*member;
}

template <auto member>
void ReadFlag(const FlagValue&, ParsedFlags& flags) {
  Field(flags, member) = true;
}

template <auto member>
void ReadText(const FlagValue& given, ParsedFlags& flags) {
  if (given.text.empty()) throw ValidationError(given.name + " needs a value that is not empty");
  Field(flags, member) = given.text;
}

// Appends the value to the list `member`.
template <auto member>
void ReadTextInto(const FlagValue& given, ParsedFlags& flags) {
  if (given.text.empty()) throw ValidationError(given.name + " needs a value that is not empty");
  Field(flags, member).push_back(given.text);
}

// Splits the value into words as a shell does. Throws ValidationError if there is no word.
template <auto member>
void ReadCommand(const FlagValue& given, ParsedFlags& flags) {
  std::vector<std::string>& words = Field(flags, member);
  words = ReadWords(given.name, given.text);
  if (words.empty()) throw ValidationError(given.name + " needs a value that is not empty");
}

template <auto member, int64_t min, int64_t max>
void ReadNumberInto(const FlagValue& given, ParsedFlags& flags) {
  Field(flags, member) = static_cast<std::conditional_t<(max <= INT32_MAX), int, int64_t>>(
      ReadWhole<int64_t>(given.name, given.text, min, max));
}

template <auto member, int64_t min_ms, int64_t max_s>
void ReadSecondsInto(const FlagValue& given, ParsedFlags& flags) {
  Field(flags, member) =
      ReadSecondsAsMs(given.name, given.text, static_cast<double>(min_ms) / 1000.0, max_s);
}

inline void ReadNothing(const FlagValue&, ParsedFlags&) {}

// A choice: the word on the command line and its value. `choices` below are arrays of this type.
template <class T>
struct Named {
  const char* name;
  T value;
};

template <auto member, const auto& choices>
void ReadChoiceInto(const FlagValue& given, ParsedFlags& flags) {
  std::vector<std::pair<std::string, decltype(choices[0].value)>> pairs;
  for (const auto& choice : choices) pairs.emplace_back(choice.name, choice.value);
  Field(flags, member) = ReadChoice(given.name, given.text, pairs);
}

template <const auto& choices>
std::vector<std::string> WordsOf() {
  std::vector<std::string> words;
  for (const auto& choice : choices) words.emplace_back(choice.name);
  return words;
}

inline constexpr OptionTarget kIgnoredFlag = {&ReadNothing, ValueKind::kFlag};
inline constexpr OptionTarget kRefusedFlag = {OptionTarget::Read{nullptr}, ValueKind::kFlag};

template <auto member>
inline constexpr OptionTarget kFlag = {&ReadFlag<member>, ValueKind::kFlag};
template <auto member>
inline constexpr OptionTarget kText = {&ReadText<member>, ValueKind::kText};
template <auto member>
inline constexpr OptionTarget kFile = {&ReadText<member>, ValueKind::kFile};
// Target of an option that takes several files and appends each file to a list.
template <auto member>
inline constexpr OptionTarget kFiles = {&ReadTextInto<member>, ValueKind::kFile};
template <auto member>
inline constexpr OptionTarget kFolder = {&ReadText<member>, ValueKind::kFolder};

// Target of an option that takes a whole number from `min` to `max`, inclusive.
template <auto member, int64_t min, int64_t max>
inline constexpr OptionTarget kWhole = {&ReadNumberInto<member, min, max>, ValueKind::kNumber};

// Target of an option that takes a number of seconds, from `min_ms` milliseconds to `max_s`
// seconds. The value is stored in milliseconds.
template <auto member, int64_t min_ms, int64_t max_s = 86'400>
inline constexpr OptionTarget kSeconds = {&ReadSecondsInto<member, min_ms, max_s>,
                                          ValueKind::kSeconds};

// Target of an option that takes one of `choices`, a constant array of Named.
template <auto member, const auto& choices>
inline constexpr OptionTarget kChoice = {&ReadChoiceInto<member, choices>, ValueKind::kChoice,
                                         &WordsOf<choices>};

inline OptionSpec HelpOption(OptionGroup group) {
  return {.names = "-h,--help",
          .group = group,
          .help = "print this text",
          .target = kIgnoredFlag,
          .common = true,
          .line_only = true};
}

// Returns the row of an option of a command such as ps. `value` is the placeholder of its value in
// the help.
namespace command_options {

inline OptionSpec Option(const char* names, const char* value, const char* help,
                         OptionTarget target) {
  return {.names = names,
          .value = value,
          .group = OptionGroup::kCommand,
          .help = help,
          .target = target};
}

// Returns the row of an option without a value.
inline OptionSpec Flag(const char* names, const char* help, OptionTarget target) {
  return Option(names, "", help, target);
}

inline OptionSpec Help() { return HelpOption(OptionGroup::kCommand); }

}  // namespace command_options

}  // namespace dslaunch
