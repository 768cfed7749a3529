// What DeepSpeed, PyTorch, Hugging Face and others call a key or a value that has another name
// here.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace dslaunch {

// The one of `known` that `word` stands for elsewhere: "epochs" for num_train_epochs.
std::optional<std::string> NameHere(std::string_view word, const std::set<std::string>& known);

// What to do instead of a key that has nothing of its kind here: a clause, "is ..."; empty: not
// known.
std::string_view AdviceInstead(std::string_view key);

}  // namespace dslaunch
