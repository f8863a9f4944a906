#include "headrace/format/goog_hash.h"

#include <gtest/gtest.h>

namespace headrace {
namespace {

TEST(GoogHash, FindsTheSumInAnyOrder) {
  const Crc32c sum(0xE3069283);
  EXPECT_EQ(crc32c_of_goog_hash("crc32c=4waSgw=="), sum);
  EXPECT_EQ(crc32c_of_goog_hash("crc32c=4waSgw==,md5=JfnnlDI7RTiF9RgfG2JNCw=="), sum);
  EXPECT_EQ(crc32c_of_goog_hash("md5=JfnnlDI7RTiF9RgfG2JNCw== ,\tcrc32c=4waSgw== "), sum);
}

TEST(GoogHash, IsNothingIfItHoldsNoSum) {
  for (const char* value : {"", ",", "md5=JfnnlDI7RTiF9RgfG2JNCw==", "crc32c=", "crc32c=4waSgw",
                            "xcrc32c=4waSgw==", "crc32c=4waSgw==4waSgw=="}) {
    EXPECT_EQ(crc32c_of_goog_hash(value), std::nullopt) << value;
  }
}

}  // namespace
}  // namespace headrace
