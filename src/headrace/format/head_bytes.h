// What the bytes of an HTTP head are, several at a time.
#pragma once

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace headrace {

inline constexpr size_t kMaskedBytes = 64;

// Of `kMaskedBytes` bytes, a bit each, the first byte's the lowest.
struct HeadMasks {
  uint64_t returns = 0;  // CR
  uint64_t feeds = 0;    // LF
  uint64_t bad = 0;  // other control characters, which no head may have (RFC 9110, 5.5); not TAB

  bool operator==(const HeadMasks&) const = default;
};

inline HeadMasks head_masks_by_byte(std::span<const char, kMaskedBytes> bytes) {
  HeadMasks masks;
  for (size_t i = 0; i < kMaskedBytes; ++i) {
    const auto byte = static_cast<uint8_t>(bytes[i]);
    const bool is_return = byte == '\r', is_feed = byte == '\n';
    const bool is_control = (byte < 0x20 && byte != '\t') || byte == 0x7F;
    masks.returns |= uint64_t{is_return} << i;
    masks.feeds |= uint64_t{is_feed} << i;
    masks.bad |= uint64_t{is_control && !is_return && !is_feed} << i;
  }
  return masks;
}

#ifdef __SSE2__

inline HeadMasks head_masks(std::span<const char, kMaskedBytes> bytes) {
  constexpr size_t kVectorBytes = sizeof(__m128i);
  HeadMasks masks;
  uint64_t controls = 0;
  for (size_t i = 0; i < kMaskedBytes; i += kVectorBytes) {
    const __m128i vector = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes.data() + i));
    const auto mask_of = [i](__m128i is_so) {
      return static_cast<uint64_t>(static_cast<uint32_t>(_mm_movemask_epi8(is_so))) << i;
    };
    const auto equals = [vector](char c) { return _mm_cmpeq_epi8(vector, _mm_set1_epi8(c)); };
    const __m128i is_low = _mm_cmpeq_epi8(_mm_min_epu8(vector, _mm_set1_epi8(0x1F)), vector);
    masks.returns |= mask_of(equals('\r'));
    masks.feeds |= mask_of(equals('\n'));
    controls |= mask_of(_mm_or_si128(_mm_andnot_si128(equals('\t'), is_low), equals(0x7F)));
  }
  masks.bad = controls & ~(masks.returns | masks.feeds);
  return masks;
}

// How many characters at the beginning of `text` are usual in names (letters, digits, dashes), or
// fewer: what is left at its end, less than a vector, is not looked at.
inline size_t usual_name_size(std::string_view text) {
  constexpr size_t kVectorBytes = sizeof(__m128i);
  size_t size = 0;
  while (text.size() - size >= kVectorBytes) {
    const __m128i vector = _mm_loadu_si128(reinterpret_cast<const __m128i*>(text.data() + size));
    const auto is_within = [](__m128i values, char first, char count) {
      const __m128i above = _mm_sub_epi8(values, _mm_set1_epi8(first));
      return _mm_cmpeq_epi8(_mm_min_epu8(above, _mm_set1_epi8(static_cast<char>(count - 1))),
                            above);
    };
    const __m128i lower = _mm_or_si128(vector, _mm_set1_epi8(0x20));
    const __m128i is_usual =
        _mm_or_si128(_mm_or_si128(is_within(lower, 'a', 26), is_within(vector, '0', 10)),
                     _mm_cmpeq_epi8(vector, _mm_set1_epi8('-')));
    const auto mask = static_cast<uint32_t>(_mm_movemask_epi8(is_usual));
    const auto count = static_cast<size_t>(std::countr_one(mask));
    size += count;
    if (count < kVectorBytes) break;
  }
  return size;
}

#else

inline HeadMasks head_masks(std::span<const char, kMaskedBytes> bytes) {
  return head_masks_by_byte(bytes);
}
inline size_t usual_name_size(std::string_view) { return 0; }

#endif

}  // namespace headrace
