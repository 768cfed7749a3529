// Lets a long write into a folder continue after it was interrupted.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/unique_fd.h"
#include "trainer/base/durable_file.h"
#include "trainer/base/train_error.h"

namespace dslaunch {

inline constexpr char kWriteJournal[] = "tmp-journal";

// Returns the files that the text of a journal records, if it is a journal of `work`. The text is
// not trusted: invalid lines, which a power cut leaves, are skipped. Pure.
std::optional<std::map<std::string, FileSum>> ParseWriteJournal(const std::string& text,
                                                                const std::string& work);

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

  // Returns the checksum of the file `name` at `path` if the journal records it and the file still
  // has these bytes. Reads the whole file.
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

// Returns the error for a failed write: `cause`, and, if the disk failed, also the number of bytes
// that were to be written and, if `continues`, that the same command continues.
TrainError UnfinishedWrite(const TrainError& cause, uint64_t bytes, bool continues);

// Throws kIo, naming both numbers, if the file system of `folder` has less than `needed_bytes`.
void CheckRoom(const std::string& folder, uint64_t needed_bytes);

}  // namespace dslaunch
