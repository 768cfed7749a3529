// Lets a long write into a folder continue after it was interrupted.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "base/unique_fd.h"
#include "trainer/base/durable_file.h"

namespace dslaunch {

inline constexpr char kWriteJournal[] = "tmp-journal";

// The file tmp-journal in a folder, which records the completed files of one piece of work. It is
// locked, so only one process at a time writes there. Errors are TrainError.
class WriteJournal {
 public:
  // Creates the journal, or continues the one that an interrupted process left for the same `work`
  // (what is written, from which source). A journal of other work is emptied. Throws kBadInput if
  // another process holds it; kIo.
  WriteJournal(const std::string& folder, const std::string& work);

  // Returns whether `folder` has a journal of `work`, which a new one would continue.
  static bool Continues(const std::string& folder, const std::string& work);

  // Returns the sum of the file `name` at `path` if the journal has it and the bytes are still
  // those. Reads the whole file.
  std::optional<FileSum> Completed(const std::string& name, const std::string& path) const;
  // Records a file, durably.
  void Add(const std::string& name, const FileSum& sum);
  // Removes the journal's file, when the work is done. The lock is kept.
  void Remove();

 private:
  void Append(const std::string& line);

  std::string path_;
  UniqueFd fd_;
  std::map<std::string, FileSum> files_;
};

}  // namespace dslaunch
