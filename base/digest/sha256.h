// SHA-256 of what comes piece by piece.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/error.h"

struct evp_md_ctx_st;

namespace dslaunch {

class Sha256 {
 public:
  Sha256();
  void Add(std::string_view bytes);
  // Once. 32 bytes.
  std::string Finish();

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };
  std::unique_ptr<evp_md_ctx_st, Free> context_;
};

// 32 bytes.
std::string Sha256Of(std::string_view bytes);

// Adds the next `size` bytes of an open file. The number that were there: less at its end.
// kIo; a fragment for a sentence that names the file.
Result<uint64_t> AddFromFile(int fd, uint64_t size, Sha256& sum);

}  // namespace dslaunch
