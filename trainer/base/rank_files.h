// The folder in which a rank stores files for the job's report (proto/contract/rank_files.h).
#pragma once

#include <string>

namespace dslaunch {

// Returns the folder named by DSLAUNCH_RANK_DIR; empty if no files are wanted.
std::string RankDir();

// Returns the job's folder on this node (JOBDIR/nodes/NODE), which all attempts share; empty if
// there is none.
std::string NodeDir();

// Writes `text` to the file `name` in RankDir(). Prints a message if that fails, because a report
// must not end the training.
void WriteRankFile(const std::string& name, const std::string& text);

}  // namespace dslaunch
