// Finds the folder in which a rank stores files for the job's report (proto/contract/rank_files.h),
// and writes files there.
#pragma once

#include <string>

namespace dslaunch {

// Returns the folder that DSLAUNCH_RANK_DIR names; empty if no files are to be written.
std::string RankDir();

// Returns the job's folder on this node (JOBDIR/nodes/NODE), which all attempts share; empty if
// RankDir() is empty.
std::string NodeDir();

// Writes `text` to the file `name` in RankDir(). If that fails, only prints a message, because a
// missing report must not end the training.
void WriteRankFile(const std::string& name, const std::string& text);

}  // namespace dslaunch
