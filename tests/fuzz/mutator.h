// Mutates inputs at random.
#pragma once

#include <algorithm>
#include <iterator>
#include <random>
#include <string>

namespace dslaunch {

class Mutator {
 public:
  explicit Mutator(unsigned seed) : random_(seed) {}

  size_t Below(size_t bound) { return random_() % bound; }

  // Returns `text` with one to four random changes.
  std::string Changed(std::string text) {
    for (size_t changes = 1 + Below(4); changes > 0 && !text.empty(); --changes) Change(text);
    return text;
  }

 private:
  void Change(std::string& text) {
    const size_t at = Below(text.size());
    const size_t length = std::min(text.size() - at, 1 + Below(40));
    switch (Below(7)) {
      case 0:
        text[at] = static_cast<char>(text[at] ^ (1 << Below(8)));
        break;
      case 1:
        text[at] = static_cast<char>(random_());
        break;
      case 2:
        text.erase(at, length);
        break;
      case 3:
        text.insert(Below(text.size()), text.substr(at, length));
        break;
      case 4:
        text.insert(at, kWords[Below(std::size(kWords))]);
        break;
      case 5:
        ReplaceNumber(text, at);
        break;
      default:
        if (Below(8) == 0) text.resize(at);
    }
  }

  // Replaces the next number after `at`, by a number below 70 or by one of kWords. Does nothing if
  // there is no number.
  void ReplaceNumber(std::string& text, size_t at) {
    constexpr char kDigits[] = "0123456789";
    const size_t begin = text.find_first_of(kDigits, at);
    if (begin == std::string::npos) return;
    const size_t end = std::min(text.find_first_not_of(kDigits, begin), text.size());
    text.replace(begin, end - begin,
                 Below(2) == 0 ? std::to_string(Below(70)) : kWords[Below(std::size(kWords))]);
  }

  // Limits of number types, and words that JSON, safetensors, YAML and terminals interpret.
  static constexpr const char* kWords[] = {"0",
                                           "-0",
                                           "-1",
                                           "1.0",
                                           "1e999",
                                           "4294967296",
                                           "9223372036854775807",
                                           "9223372036854775808",
                                           "18446744073709551615",
                                           "18446744073709551616",
                                           "null",
                                           "true",
                                           "[]",
                                           "{}",
                                           "[[[[[[[[",
                                           "{\"a\":{\"a\":{\"a\":",
                                           "\"\"",
                                           "\"__metadata__\":",
                                           "\"../../etc/passwd\"",
                                           "\\u0000",
                                           "\\ud800",
                                           "\xff",
                                           "\xc3\xa4",
                                           "/**/",
                                           "//\n",
                                           "\"F64\"",
                                           "\"data_offsets\":[0,8],",
                                           "\"shape\":[2],",
                                           "\"slices\":[],",
                                           ",",
                                           ":",
                                           "]",
                                           "}",
                                           "\"",
                                           "\n",
                                           "\r\n",
                                           ": ",
                                           "\n- ",
                                           "&a ",
                                           "*a",
                                           "!!x ",
                                           "<<: ",
                                           "---\n",
                                           "# ",
                                           "=",
                                           "@",
                                           "--",
                                           "\x1b[2J",
                                           "\x1b]0;",
                                           "\xe2\x80\xae",
                                           "\xc2\x9b"};
  std::mt19937 random_;
};

}  // namespace dslaunch
