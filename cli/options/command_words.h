// What the command lines of dslaunch's commands share (ps, logs, hostfile ...). Pure.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace dslaunch {

// Option names may be spelt with '-' or '_': this is the name with '_'. What is no option, and what
// follows '=', stays.
std::string WithUnderscores(std::string word);

// Of the first word that `app` did not know: "unknown option '--tea', did you mean --tee?"
std::string DescribeExtra(const CLI::App& app);

}  // namespace dslaunch
