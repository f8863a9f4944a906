#include "headrace/format/head_bytes.h"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <string>

#include "headrace/base/ascii.h"

namespace headrace {
namespace {

constexpr std::string_view kTelling("\r\n\t\0\x1F \x7E\x7F\x80\xFF\x0Ax:", 14);

bool is_usual_in_names(char c) {
  const char lower = ascii_lower(c);
  return (lower >= 'a' && lower <= 'z') || (c >= '0' && c <= '9') || c == '-';
}

TEST(HeadMasks, AreThoseOfEachByte) {
  for (int byte = 0; byte < 256; ++byte) {
    for (const size_t place : {size_t{0}, size_t{15}, size_t{16}, size_t{63}}) {
      std::array<char, kMaskedBytes> bytes;
      bytes.fill('x');
      bytes[place] = static_cast<char>(byte);
      ASSERT_EQ(head_masks(bytes), head_masks_by_byte(bytes)) << byte << ' ' << place;
    }
  }
}

TEST(HeadMasks, OfAnyBytesAreThoseOfEach) {
  std::mt19937 random(1);
  for (int round = 0; round < 10'000; ++round) {
    std::array<char, kMaskedBytes> bytes;
    for (char& byte : bytes) {
      byte = random() % 2 != 0 ? kTelling[random() % kTelling.size()] : static_cast<char>(random());
    }
    ASSERT_EQ(head_masks(bytes), head_masks_by_byte(bytes)) << round;
  }
}

TEST(UsualNameSize, IsNoMoreThanWhatIsUsualAndStopsOnlyThereOrShortOfTheEnd) {
  for (int byte = 0; byte < 256; ++byte) {
    for (size_t place = 0; place < 40; ++place) {
      std::string text(40, 'x');
      text[place] = static_cast<char>(byte);
      const size_t end = is_usual_in_names(text[place]) ? text.size() : place;
      const size_t size = usual_name_size(text);
      ASSERT_LE(size, end) << byte << ' ' << place;
#ifdef __SSE2__
      ASSERT_EQ(size, end == text.size() ? 32 : std::min(end, size_t{32})) << byte << ' ' << place;
#endif
    }
  }
  EXPECT_EQ(usual_name_size(""), 0u);
}

}  // namespace
}  // namespace headrace
