#include "headrace/format/npy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace headrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::string file_of(const std::string& dictionary, char major = 1) {
  std::string out = std::string("\x93NUMPY") + major + '\0';
  const size_t width = major == 1 ? 2 : 4;
  for (size_t i = 0; i < width; ++i) out += static_cast<char>(dictionary.size() >> 8 * i);
  return out + dictionary;
}

std::string refusal_of(const std::string& dictionary, Code code = Code::kCorrupt) {
  const Result<NpyHeader> parsed = parse_npy_header(bytes_of(file_of(dictionary)));
  EXPECT_FALSE(parsed.has_value()) << dictionary;
  if (parsed) return "";
  EXPECT_EQ(parsed.error().code(), code);
  return parsed.error().message();
}

const std::string kPlain = "{'descr': '<u2', 'fortran_order': False, 'shape': (1000,), }   \n";

TEST(NpyHeader, IsReadInAllVersions) {
  for (const char major : std::string("\1\2\3")) {
    const std::string file = file_of(kPlain, major);
    const NpyHeader header = parse_npy_header(bytes_of(file + "items")).value();
    EXPECT_EQ(header.descr, "<u2");
    EXPECT_FALSE(header.fortran_order);
    EXPECT_THAT(header.shape, ElementsAre(1000));
    EXPECT_EQ(header.data_begin, file.size());
    EXPECT_EQ(npy_header_bytes(bytes_of(file.substr(0, kNpyLengthBytes))).value(), file.size());
  }
}

TEST(NpyHeader, TellsOrderAndShape) {
  const auto shape_of = [](const std::string& shape) {
    return parse_npy_header(
               bytes_of(file_of("{\"fortran_order\":True,'shape':" + shape + ",'descr':\">i4\"}")))
        .value();
  };
  EXPECT_THAT(shape_of("()").shape, IsEmpty());
  EXPECT_THAT(shape_of("(3, 4)").shape, ElementsAre(3, 4));
  EXPECT_THAT(shape_of("( 3L , 4L , )").shape, ElementsAre(3, 4));
  EXPECT_TRUE(shape_of("(3,)").fortran_order);
  EXPECT_EQ(shape_of("(3,)").descr, ">i4");
}

// A shorter array must not look like a whole one, and a header that ends early like no header.
TEST(NpyHeader, IsRefusedAtEveryPlaceWhereItIsCut) {
  const std::string file = file_of(kPlain);
  for (size_t size = 0; size < file.size(); ++size) {
    const Result<NpyHeader> parsed = parse_npy_header(bytes_of(file).first(size));
    ASSERT_FALSE(parsed.has_value()) << size;
    EXPECT_EQ(parsed.error().code(), Code::kCorrupt);
    EXPECT_THAT(parsed.error().message(), HasSubstr("is cut"));
  }
}

TEST(NpyHeader, IsRefusedWhereItIsNone) {
  const auto why = [](const std::string& file) {
    return npy_header_bytes(bytes_of(file)).error().message();
  };
  EXPECT_THAT(why("PK\3\4 and so on, as .npz"), HasSubstr("no .npy file"));
  EXPECT_THAT(why(file_of(kPlain, 4)), HasSubstr("version 4"));
  EXPECT_THAT(why(file_of(std::string(70'000, ' '), 2)), HasSubstr("too many"));
  EXPECT_THAT(refusal_of("[1]"), HasSubstr("no dictionary"));
  EXPECT_THAT(refusal_of("{'descr': '<u2', 'shape': (3,)}"), HasSubstr("does not tell"));
  EXPECT_THAT(refusal_of("{'descr': '<u2', 'descr': '<u4'}"), HasSubstr("'descr' too many"));
  EXPECT_THAT(refusal_of("{'other': 1}"), HasSubstr("'other' too many"));
  EXPECT_THAT(refusal_of("{'shape': (3,) 'descr': '<u2'}"), HasSubstr("behind a value"));
  EXPECT_THAT(refusal_of(kPlain + "x"), HasSubstr("behind its dictionary"));
  EXPECT_THAT(refusal_of("{'shape': (-3,)}"), HasSubstr("no shape"));
  EXPECT_THAT(refusal_of("{'shape': (99999999999999999999,)}"), HasSubstr("no shape"));
  EXPECT_THAT(refusal_of("{'fortran_order': 0}"), HasSubstr("no order"));
  EXPECT_THAT(refusal_of("{'descr': '<u2"), HasSubstr("no type"));
  EXPECT_THAT(refusal_of("{'descr': [('a', '<u2')]}", Code::kInvalidArgument),
              HasSubstr("records"));
}

}  // namespace
}  // namespace headrace
