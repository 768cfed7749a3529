// Reads the run file dslaunch.yaml, which contains a recipe and launch options. The section
// `launch` contains options under their names on the command line, with the same values:
//   launch:
//     hostfile: hosts
//     num_gpus: 8
//     detach: true              # flags
//     env: {LR: 0.1, MODE: a}   # or a list of NAME=VALUE or NAME
//   model: ...
// Relative paths start at the current folder, as on the command line.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"
#include "cli/options/option_layers.h"
#include "cli/options/option_table.h"

namespace dslaunch {

struct LaunchFile {
  OptionLayer launch;
  bool has_recipe = false;  // whether the file has other sections besides `launch`
};

// Reads a run file from its text; `source` is the name of the file in messages. Checks the
// structure of the file and the names of options; the readers of the options check the values.
// Errors are kBadInput and name `source`:line:column and the key.
Result<LaunchFile> ParseLaunchFile(std::string_view text, const std::string& source,
                                   const OptionTable& table);

// Reads the run file at `path` as ParseLaunchFile() does.
Result<LaunchFile> ReadLaunchFile(const std::string& path, const OptionTable& table);

// Reads a file that the command line does not name, such as ./dslaunch.yaml. Also rejects the file
// if another user may have written it, or if it names code to run (ssh_command, venv_script ...).
// Rejects it too if it decides who may join (insecure_rdzv, rdzv_token_file), or if its env sets a
// variable for which IsSafeVariable() is false. These errors are kBadInput and explain how to name
// the file.
Result<LaunchFile> ReadUnnamedLaunchFile(const std::string& path, const OptionTable& table);

}  // namespace dslaunch
