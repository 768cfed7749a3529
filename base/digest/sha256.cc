#include "base/digest/sha256.h"

#include <openssl/evp.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "base/errno_text.h"

namespace dslaunch {

void Sha256::Free::operator()(evp_md_ctx_st* context) const { EVP_MD_CTX_free(context); }

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr);
}

void Sha256::Add(std::string_view bytes) {
  EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size());
}

std::string Sha256::Finish() {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  EVP_DigestFinal_ex(context_.get(), digest, &size);
  return {reinterpret_cast<const char*>(digest), size};
}

std::string Sha256Of(std::string_view bytes) {
  Sha256 sum;
  sum.Add(bytes);
  return sum.Finish();
}

Result<uint64_t> AddFromFile(int fd, uint64_t size, Sha256& sum) {
  std::vector<char> chunk(256 * 1024);
  uint64_t added = 0;
  while (added < size) {
    const ssize_t n = ::read(fd, chunk.data(), std::min<uint64_t>(chunk.size(), size - added));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Error{ExitCode::kIo, ErrnoText(errno)};
    if (n == 0) break;
    sum.Add({chunk.data(), static_cast<size_t>(n)});
    added += static_cast<uint64_t>(n);
  }
  return added;
}

}  // namespace dslaunch
