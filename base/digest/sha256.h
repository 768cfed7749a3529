// Computes the SHA-256 digest of data that is passed in pieces.
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

  // Appends bytes to the data. Precondition: Finish() was not called.
  void Add(std::string_view bytes);
  // Returns the digest of all data, 32 bytes. Precondition: Finish() was not called before.
  std::string Finish();

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };
  std::unique_ptr<evp_md_ctx_st, Free> context_;
};

// Returns the SHA-256 digest of `bytes`, 32 bytes.
std::string Sha256Of(std::string_view bytes);

// Adds the next `size` bytes of an open file to `sum`. Returns the number of bytes added, which is
// less than `size` only at the end of the file. Fails with kIo if the file cannot be read; the
// message is part of a sentence in which the caller names the file.
Result<uint64_t> AddFromFile(int fd, uint64_t size, Sha256& sum);

}  // namespace dslaunch
