// Records the progress of a long write into a folder, so that it can continue after an
// interruption.
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

// Returns the files that the text of a journal records; nullopt if it is not a journal of `work`.
// The text is not trusted. Invalid lines, which a power failure may leave, are skipped. Pure
// function.
std::optional<std::map<std::string, FileSum>> ParseWriteJournal(const std::string& text,
                                                                const std::string& work);

// Keeps the file tmp-journal in a folder, which records the completed files of a long write. The
// file is locked, so only one process at a time writes into the folder. Throws TrainError.
class WriteJournal {
 public:
  // Creates the journal, or continues the journal that an interrupted process left for the same
  // `work`, a text that identifies the output and its source. Empties a journal of other work.
  // Throws kBadInput if another process has locked the journal; kIo if it cannot be written.
  WriteJournal(const std::string& folder, const std::string& work);

  // Returns whether `folder` has a journal of `work`, which a new WriteJournal would continue.
  static bool Continues(const std::string& folder, const std::string& work);

  // Returns the size and checksum of the file `name` at `path` if the journal records the file and
  // the file still matches the record. Returns nullopt otherwise, also if the file cannot be read.
  // Reads the whole file if the journal records it.
  std::optional<FileSum> Completed(const std::string& name, const std::string& path) const;
  // Records a completed file, and syncs the journal to the disk.
  void Add(const std::string& name, const FileSum& sum);
  // Removes the journal's file after the work is done. Keeps the lock.
  void Remove();

 private:
  void Append(const std::string& line);

  std::string path_;
  UniqueFd fd_;
  std::map<std::string, FileSum> files_;
};

// Returns the error for a failed write. If the code of `cause` is kIo, adds the number of bytes
// that were to be written, and, if `continues`, the hint that the same command continues the write.
// Otherwise returns `cause`.
TrainError UnfinishedWrite(const TrainError& cause, uint64_t bytes, bool continues);

// Throws kIo if the file system of `folder` has less than `needed_bytes` free. The message has both
// numbers.
void CheckRoom(const std::string& folder, uint64_t needed_bytes);

}  // namespace dslaunch
