#include "headrace/format/msgpack.h"

#include <gtest/gtest.h>

#include <string>

namespace headrace {
namespace {

using namespace std::string_literals;

TEST(MsgpackReader, ReadsTextsOfEverySize) {
  for (const size_t size :
       {size_t{0}, size_t{31}, size_t{32}, size_t{255}, size_t{256}, size_t{65536}}) {
    const std::string text(size, 'x');
    for (const int width : {0, 1, 2, 4}) {
      if (width == 0 && size > 31) continue;
      if (width == 1 && size > 255) continue;
      if (width == 2 && size > 65535) continue;
      std::string bytes;
      if (width == 0) bytes += static_cast<char>(0xA0 | size);
      if (width == 1) bytes += "\xD9"s;
      if (width == 2) bytes += "\xDA"s;
      if (width == 4) bytes += "\xDB"s;
      for (int i = width - 1; i >= 0; --i) bytes += static_cast<char>(size >> (8 * i));
      bytes += text;
      MsgpackReader reader(bytes);
      std::string_view read;
      ASSERT_TRUE(reader.text(read)) << size << ", " << width;
      EXPECT_EQ(read, text);
      EXPECT_TRUE(reader.at_end());
      MsgpackReader cut(std::string_view(bytes).substr(0, bytes.size() - 1));
      EXPECT_FALSE(cut.text(read));
    }
  }
}

TEST(MsgpackReader, ReadsIntegersOfEveryForm) {
  for (const auto& [bytes, value] : {
           std::pair("\x00"s, uint64_t{0}),
           std::pair("\x7F"s, uint64_t{127}),
           std::pair("\xCC\xFF"s, uint64_t{255}),
           std::pair("\xCD\x01\x00"s, uint64_t{256}),
           std::pair("\xCE\x00\x01\x00\x00"s, uint64_t{65536}),
           std::pair("\xCF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF"s, UINT64_MAX),
           std::pair("\xD0\x7F"s, uint64_t{127}),
           std::pair("\xD1\x01\x00"s, uint64_t{256}),
           std::pair("\xD2\x00\x01\x00\x00"s, uint64_t{65536}),
           std::pair("\xD3\x00\x00\x00\x01\x00\x00\x00\x00"s, uint64_t{1} << 32),
       }) {
    MsgpackReader reader(bytes);
    uint64_t read = 1;
    EXPECT_TRUE(reader.number(read));
    EXPECT_EQ(read, value);
    EXPECT_TRUE(reader.at_end());
  }
  for (const auto& bytes : {"\xFF"s, "\xD0\x80"s, "\xD3\x80\0\0\0\0\0\0\0"s, "\xA1x"s, "\xC0"s,
                            "\xCB\0\0\0\0\0\0\0\0"s, ""s, "\xCD\x01"s}) {
    MsgpackReader reader(bytes);
    uint64_t read = 0;
    EXPECT_FALSE(reader.number(read));
    EXPECT_TRUE(reader.at_end());  // nothing can be read after it
  }
}

TEST(MsgpackReader, NoMoreValuesAreClaimedThanThereAreBytes) {
  size_t count = 0;
  EXPECT_TRUE(MsgpackReader("\x92\x01\x02"s).array(count));
  EXPECT_EQ(count, 2u);
  EXPECT_FALSE(MsgpackReader("\x92\x01"s).array(count));
  EXPECT_FALSE(MsgpackReader("\xDD\xFF\xFF\xFF\xFF\x01"s).array(count));
  EXPECT_TRUE(MsgpackReader("\xDE\x00\x01\xA1x\x01"s).map(count));
  EXPECT_FALSE(MsgpackReader("\xDF\xFF\xFF\xFF\xFF\x01\x01"s).map(count));
  EXPECT_FALSE(MsgpackReader("\x81\x01"s).map(count));
}

TEST(MsgpackReader, SkipsWhateverThereIs) {
  // A value of each form, and another one behind it.
  for (const auto& bytes : {"\x05"s,
                            "\xFF"s,
                            "\xC0"s,
                            "\xC2"s,
                            "\xC3"s,
                            "\xC4\x01x"s,
                            "\xC5\x00\x01x"s,
                            "\xC6\x00\x00\x00\x01x"s,
                            "\xC7\x01\x07x"s,
                            "\xC8\x00\x01\x07x"s,
                            "\xC9\x00\x00\x00\x01\x07x"s,
                            "\xCA\0\0\0\0"s,
                            "\xCB\0\0\0\0\0\0\0\0"s,
                            "\xCC\x01"s,
                            "\xD3\0\0\0\0\0\0\0\1"s,
                            "\xD4\x07x"s,
                            "\xD5\x07xx"s,
                            "\xD6\x07xxxx"s,
                            "\xD7\x07xxxxxxxx"s,
                            "\xD8\x07xxxxxxxxxxxxxxxx"s,
                            "\xA1x"s,
                            "\xD9\x01x"s,
                            "\x92\x01\x91\xA1x"s,
                            "\xDC\x00\x01\x01"s,
                            "\x81\xA1k\x82\x01\x02\x03\xC0"s,
                            "\xDE\x00\x00"s,
                            "\x90"s}) {
    const std::string text = bytes + "\x2A";
    MsgpackReader reader(text);
    uint64_t next = 0;
    EXPECT_TRUE(reader.skip());
    EXPECT_TRUE(reader.number(next) && next == 42);
    for (size_t size = 0; size < bytes.size(); ++size) {
      EXPECT_FALSE(MsgpackReader(std::string_view(bytes).substr(0, size)).skip());
    }
  }
  EXPECT_FALSE(MsgpackReader("\xC1").skip());
  EXPECT_TRUE(MsgpackReader(std::string(100'000, '\x91') + "\x01").skip());
}

}  // namespace
}  // namespace headrace
