// Reads files of text or of JSON lines in blocks of bounded size.
#pragma once

#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

namespace dslaunch {

// A block of a file: either whole lines of JSON, or a part of a text. A text file is one document.
struct InputBlock {
  std::string file;
  bool is_json = false;
  std::string content;  // whole lines of JSON, or text that ends after a whole character
  int64_t offset = 0;   // number of bytes of the file before this block
  int64_t line = 1;     // number, from 1, of the block's first line in the file
  bool first = false;   // true if the block begins the file
  bool last = false;    // true if the block ends the file
};

// Reads the blocks of files in order. Files whose names end in .json, .jsonl or .ndjson have a JSON
// object in each line. The boundaries of blocks depend only on the file's contents.
class InputBlocks {
 public:
  static constexpr size_t kBlockBytes = 1 << 20;
  static constexpr size_t kMaxLineBytes = 64 << 20;  // maximum length of a line of JSON

  // Makes a reader of `files`. Throws TrainError kBadInput if a file is missing or is a folder.
  explicit InputBlocks(std::vector<std::string> files);

  // Returns the next block; nullopt after the last. Throws kIo if a file cannot be read, and
  // kBadInput, naming file and line, if a line of JSON is too long.
  std::optional<InputBlock> Next();

 private:
  // Reads until `rest_` has `bytes` bytes or the file ends.
  void Fill(size_t bytes);
  size_t EndOfJsonBlock();
  void Open();

  std::vector<std::string> files_;
  size_t next_file_ = 0;
  std::ifstream stream_;
  bool open_ = false;
  bool ended_ = false;   // true if `rest_` has all remaining bytes of the file
  std::string rest_;     // bytes that were read but are not in a block yet
  InputBlock position_;  // next block without its content
};

// Returns the index in `text` at which to end a block; more text follows `text`. The index is in
// the second half of `text`, at the end of a line where words of a tokenizer end too; else after
// the last line, or before the last character.
size_t EndOfTextBlock(const std::string& text);

}  // namespace dslaunch
