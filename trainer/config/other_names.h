// Names of DeepSpeed, PyTorch, Hugging Face and others for keys and values that have another name
// here.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace dslaunch {

// Returns the one of `known` for which other programs use `word`: "epochs" for num_train_epochs.
std::optional<std::string> NameHere(std::string_view word, const std::set<std::string>& known);

// Returns advice for a key of other programs without a counterpart here, as a clause "is ...";
// empty if there is none.
std::string_view AdviceInstead(std::string_view key);

}  // namespace dslaunch
