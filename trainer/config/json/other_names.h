// Translates keys and values of DeepSpeed, PyTorch, Hugging Face and other programs that have
// another name in dslaunch.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace dslaunch {

// Returns the item of `known` that other programs call `word`, such as "epochs" for
// "num_train_epochs"; nullopt if there is none.
std::optional<std::string> NameHere(std::string_view word, const std::set<std::string>& known);

// Returns advice for a key of other programs that has no counterpart in dslaunch, as a clause "is
// ..."; empty if there is no advice.
std::string_view AdviceInstead(std::string_view key);

}  // namespace dslaunch
