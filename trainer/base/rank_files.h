// The folder in which a rank leaves files for the job's report (proto/contract/rank_files.h).
#pragma once

#include <string>

namespace dslaunch {

// The folder that DSLAUNCH_RANK_DIR names; empty: no files are wanted.
std::string RankDir();

// The folder of the job on this node (JOBDIR/nodes/NODE), which later attempts find again; empty:
// there is none.
std::string NodeDir();

// Writes `text` into the file `name` of RankDir(). Where that does not work it says so: a report is
// not worth the training.
void WriteRankFile(const std::string& name, const std::string& text);

}  // namespace dslaunch
