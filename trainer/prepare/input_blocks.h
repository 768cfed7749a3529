// Reads files of text and of JSON lines in blocks of bounded size.
#pragma once

#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

namespace dslaunch {

// A part of a file: lines of JSON, or a part of a text, which is one document.
struct InputBlock {
  std::string file;
  bool is_json = false;
  std::string content;  // whole lines of JSON; text ends at the end of a character
  int64_t offset = 0;   // bytes of the file before this block
  int64_t line = 1;     // number of the first line
  bool first = false;   // the block begins the file
  bool last = false;    // the block ends the file
};

// Reads the blocks of files in order. Files whose names end in .json, .jsonl or .ndjson have a JSON
// object in each line. The end of a block depends only on the content.
class InputBlocks {
 public:
  static constexpr size_t kBlockBytes = 1 << 20;
  static constexpr size_t kMaxLineBytes = 64 << 20;  // JSON only

  // Throws TrainError kBadInput if a file is missing or is a folder.
  explicit InputBlocks(std::vector<std::string> files);

  // Returns the next block, or nullopt after the last. Throws kIo if a file cannot be read, and
  // kBadInput, naming file and line, for a line of JSON that is too long.
  std::optional<InputBlock> Next();

 private:
  // Reads until `rest_` has `bytes` bytes, or the file ends.
  void Fill(size_t bytes);
  size_t EndOfJsonBlock();
  void Open();

  std::vector<std::string> files_;
  size_t next_file_ = 0;
  std::ifstream stream_;
  bool open_ = false;
  bool ended_ = false;   // the file has no more bytes than `rest_`
  std::string rest_;     // read, but not yet in a block
  InputBlock position_;  // the next block, without content
};

// Returns where to end a block within `text`, which more text follows: in its second half, where
// words of a language model end too; else after its last line, or its last character.
size_t EndOfTextBlock(const std::string& text);

}  // namespace dslaunch
