#include "trainer/base/crc32.h"

#include <zlib.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace dslaunch {
namespace {

#if defined(__x86_64__)
constexpr size_t kBlockBytes = 16;
constexpr size_t kStrideBytes = 4 * kBlockBytes;

__attribute__((target("pclmul,sse4.1"))) __m128i Load(const unsigned char* data) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(data));
}

// Advances `block` by the number of bits that the two powers in `powers` encode, and adds `data`.
__attribute__((target("pclmul,sse4.1"))) __m128i Fold(__m128i block, __m128i powers, __m128i data) {
  return _mm_xor_si128(data, _mm_xor_si128(_mm_clmulepi64_si128(block, powers, 0x00),
                                           _mm_clmulepi64_si128(block, powers, 0x11)));
}

// Returns the CRC state after `bytes` bytes, a multiple of the block size and at least a stride.
// Folds four blocks at a time onto the next four, as described in Gopal et al., "Fast CRC
// Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel 2009. The constants are
// those of the paper for the reflected polynomial.
__attribute__((target("pclmul,sse4.1"))) uint32_t FoldedCrc(uint32_t state,
                                                            const unsigned char* data,
                                                            size_t bytes) {
  const __m128i by_stride = _mm_set_epi64x(0x1c6e41596, 0x154442bd4);
  const __m128i by_block = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0);
  const __m128i to_64_bits = _mm_set_epi64x(0, 0x163cd6124);
  // Polynomial and its inverse for Barrett's reduction.
  const __m128i polynomial = _mm_set_epi64x(0x1f7011641, 0x1db710641);
  const __m128i low_halves = _mm_setr_epi32(~0, 0, ~0, 0);
  __m128i lanes[4];
  for (size_t i = 0; i < 4; ++i) lanes[i] = Load(data + i * kBlockBytes);
  lanes[0] = _mm_xor_si128(lanes[0], _mm_cvtsi32_si128(static_cast<int>(state)));
  for (data += kStrideBytes, bytes -= kStrideBytes; bytes >= kStrideBytes;
       data += kStrideBytes, bytes -= kStrideBytes) {
    for (size_t i = 0; i < 4; ++i) {
      lanes[i] = Fold(lanes[i], by_stride, Load(data + i * kBlockBytes));
    }
  }
  __m128i rest = lanes[0];
  for (size_t i = 1; i < 4; ++i) rest = Fold(rest, by_block, lanes[i]);
  for (; bytes >= kBlockBytes; data += kBlockBytes, bytes -= kBlockBytes) {
    rest = Fold(rest, by_block, Load(data));
  }
  // Reduces 128 bits to 64 bits, and these to 32 bits (Barrett's reduction).
  rest = _mm_xor_si128(_mm_srli_si128(rest, 8), _mm_clmulepi64_si128(rest, by_block, 0x10));
  rest = _mm_xor_si128(_mm_srli_si128(rest, 4),
                       _mm_clmulepi64_si128(_mm_and_si128(rest, low_halves), to_64_bits, 0x00));
  __m128i quotient = _mm_clmulepi64_si128(_mm_and_si128(rest, low_halves), polynomial, 0x10);
  quotient = _mm_clmulepi64_si128(_mm_and_si128(quotient, low_halves), polynomial, 0x00);
  return static_cast<uint32_t>(_mm_extract_epi32(_mm_xor_si128(rest, quotient), 1));
}
#endif

}  // namespace

uint32_t Crc32(const void* data, size_t bytes, uint32_t start) {
  if (bytes == 0) return start;  // zlib would restart from 0 for a null pointer
  const auto* at = static_cast<const unsigned char*>(data);
#if defined(__x86_64__)
  static const bool has_folding =
      __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
  if (has_folding && bytes >= kStrideBytes) {
    const size_t folded = bytes - bytes % kBlockBytes;
    start = ~FoldedCrc(~start, at, folded);
    at += folded;
    bytes -= folded;
  }
#endif
  return static_cast<uint32_t>(crc32_z(start, at, bytes));
}

uint32_t CombineCrc32(uint32_t first, uint32_t second, uint64_t second_bytes) {
  return static_cast<uint32_t>(crc32_combine(first, second, static_cast<z_off_t>(second_bytes)));
}

}  // namespace dslaunch
