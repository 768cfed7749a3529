// Reads the last line of a rank's output, to show the line to users.
#pragma once

#include <string>
#include <string_view>

namespace dslaunch {

// Returns the last line of `text` that is not blank, cut to 200 bytes; empty if there is no such
// line. Carriage returns end lines too, because progress bars use them. Pure.
std::string LastLineOf(std::string_view text);

// Returns the last line of the file FOLDER/stdout.log or FOLDER/stderr.log that changed last. Reads
// at most 4 KiB. Empty if neither file has output.
std::string ReadLastLine(const std::string& folder);

}  // namespace dslaunch
