#include "headrace/checkpoint/zip_directory.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headrace/base/units.h"
#include "headrace/checkpoint/zip_format.h"
#include "headrace/checkpoint/zip_layout.h"

namespace headrace {
namespace {

using ::testing::HasSubstr;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

struct Content {
  std::string name, bytes;
};

std::string file_of(const std::vector<Content>& contents) {
  ZipLayout layout;
  std::string file;
  for (const Content& content : contents) {
    file += layout.begin_record(content.name, content.bytes.size()).value();
    EXPECT_TRUE(layout.add(bytes_of(content.bytes)).has_value());
    file += content.bytes;
    file += layout.end_record().value();
  }
  return file + layout.finish().value();
}

const std::vector<Content> kContents = {
    {"a/data.pkl", "pickle"}, {"a/data/0", std::string(1000, 'x')}, {"a/data/1", ""}};

Result<ZipDirectory> parse(std::string_view file) {
  const Result<uint64_t> begin = find_directory(bytes_of(file), file.size());
  if (!begin) return std::unexpected(begin.error());
  return parse_directory(bytes_of(file.substr(*begin)), *begin);
}

// A file as another tool may write it, each part as it is told.
struct Foreign {
  std::string name = "a/data/0", content = "content";
  uint16_t method = 0, flags = 0;
  uint32_t packed_bytes = 7, size_bytes = 7, offset = 0;
  std::string extra = {}, local_extra = {};
  uint16_t count = 1;
  int copies = 1;  // of the directory's entry
  std::string comment = {};

  std::string file() const {
    using zip::append;
    std::string out;
    append(out, zip::kLocalHeader);
    out.append(22, '\0');
    append(out, static_cast<uint16_t>(name.size()));
    append(out, static_cast<uint16_t>(local_extra.size()));
    out += name + local_extra + content;
    const size_t begin = out.size();
    for (int i = 0; i < copies; ++i) {
      append(out, zip::kDirectoryHeader);
      append(out, uint32_t{0});
      append(out, flags);
      append(out, method);
      append(out, uint32_t{0});
      append(out, Crc32().extended(bytes_of(content)).value());
      append(out, packed_bytes);
      append(out, size_bytes);
      append(out, static_cast<uint16_t>(name.size()));
      append(out, static_cast<uint16_t>(extra.size()));
      out.append(10, '\0');
      append(out, offset);
      out += name + extra;
    }
    const size_t directory_bytes = out.size() - begin;
    append(out, zip::kEnd);
    append(out, uint32_t{0});
    append(out, count);
    append(out, count);
    append(out, static_cast<uint32_t>(directory_bytes));
    append(out, static_cast<uint32_t>(begin));
    append(out, static_cast<uint16_t>(comment.size()));
    return out + comment;
  }
};

TEST(ZipDirectory, ReadsBackWhatWasLaidOut) {
  const std::string file = file_of(kContents);
  const ZipDirectory parsed = parse(file).value();
  EXPECT_TRUE(parsed.sealed);
  ASSERT_EQ(parsed.entries.size(), kContents.size());
  for (size_t i = 0; i < kContents.size(); ++i) {
    const ZipEntry& entry = parsed.entries[i];
    EXPECT_EQ(entry.name, kContents[i].name);
    EXPECT_EQ(file.substr(*entry.begin, entry.size_bytes), kContents[i].bytes);
    EXPECT_EQ(*entry.crc32c, Crc32c().extended(bytes_of(kContents[i].bytes)));
    EXPECT_EQ(entry.crc32, Crc32().extended(bytes_of(kContents[i].bytes)));
  }
}

TEST(ZipDirectory, IsFoundByTheLastBytesAlone) {
  const std::string file = file_of(kContents);
  const size_t tail_bytes = std::min(kLeastTailBytes, file.size());
  EXPECT_EQ(find_directory(bytes_of(file).last(tail_bytes), file.size()).value(),
            parse(file)->begin);
}

TEST(ZipDirectory, ImpliesEveryByteAroundTheContents) {
  const std::string file = file_of(kContents);
  const ZipDirectory parsed = parse(file).value();
  uint64_t frame_bytes = 0;
  for (const ZipFrame& frame : parsed.frames()) {
    EXPECT_EQ(file.substr(frame.begin, frame.bytes.size()), frame.bytes);
    frame_bytes += frame.bytes.size();
  }
  EXPECT_EQ(frame_bytes + 6 + 1000, parsed.begin);
  EXPECT_EQ(parsed.crc32c(bytes_of(file).subspan(parsed.begin)), Crc32c().extended(bytes_of(file)));
}

TEST(ZipDirectory, NoChangedBitOfItPasses) {
  const std::string file = file_of(kContents);
  const uint64_t begin = parse(file)->begin;
  for (size_t bit = begin * 8; bit < file.size() * 8; ++bit) {
    std::string changed = file;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
    EXPECT_FALSE(parse(changed).has_value()) << "bit " << bit % 8 << " of byte " << bit / 8;
  }
}

TEST(ZipDirectory, NoBeginningOfAFilePasses) {
  const std::string file = file_of(kContents);
  for (size_t size = 0; size < file.size(); ++size) {
    EXPECT_EQ(parse(std::string_view(file).substr(0, size)).error().code(), Code::kCorrupt);
  }
}

TEST(ZipDirectory, ReadsAPlainZip) {
  const ZipDirectory parsed = parse(Foreign{}.file()).value();
  EXPECT_FALSE(parsed.sealed);
  EXPECT_EQ(parsed.entries[0].crc32c, std::nullopt);
  // No padding as torch's: the local header has to tell.
  EXPECT_EQ(parsed.entries[0].begin, std::nullopt);
  const std::string file = Foreign{.local_extra = "12345"}.file();
  EXPECT_EQ(content_begin(parse(file)->entries[0], bytes_of(file)).value(), 30 + 8 + 5);
}

TEST(ZipDirectory, ToleratesACommentThatIsNotOurs) {
  EXPECT_FALSE(parse(Foreign{.comment = "written by somebody"}.file())->sealed);
}

TEST(ZipDirectory, RefusesCompressedAndEncryptedRecords) {
  EXPECT_THAT(parse(Foreign{.method = 8}.file()).error().message(), HasSubstr("is compressed"));
  EXPECT_THAT(parse(Foreign{.flags = 1}.file()).error().message(), HasSubstr("is encrypted"));
}

TEST(ZipDirectory, RefusesRecordsThatLieElsewhere) {
  EXPECT_THAT(parse(Foreign{.packed_bytes = 8, .size_bytes = 8}.file()).error().message(),
              HasSubstr("outside"));
  EXPECT_THAT(parse(Foreign{.offset = 1}.file()).error().message(), HasSubstr("outside"));
  EXPECT_THAT(parse(Foreign{.offset = 4000}.file()).error().message(), HasSubstr("outside"));
}

TEST(ZipDirectory, RefusesTwoRecordsInOnePlaceAndTwoOfOneName) {
  EXPECT_EQ(parse(Foreign{.count = 2, .copies = 2}.file()).error().code(), Code::kCorrupt);
}

TEST(ZipDirectory, RefusesAWrongNumberOfRecords) {
  EXPECT_EQ(parse(Foreign{.count = 2}.file()).error().code(), Code::kCorrupt);
  EXPECT_EQ(parse(Foreign{.count = 0}.file()).error().code(), Code::kCorrupt);
}

TEST(ZipDirectory, RefusesExtraFieldsThatAreCutOrLackANumber) {
  EXPECT_EQ(parse(Foreign{.extra = "abc"}.file()).error().code(), Code::kCorrupt);
  EXPECT_EQ(parse(Foreign{.extra = std::string("AB\xFF\xFF", 4)}.file()).error().code(),
            Code::kCorrupt);
  std::string empty_64;
  zip::append(empty_64, zip::kExtra64);
  zip::append(empty_64, uint16_t{0});
  EXPECT_EQ(
      parse(Foreign{.packed_bytes = UINT32_MAX, .size_bytes = UINT32_MAX, .extra = empty_64}.file())
          .error()
          .message(),
      "a 64-bit size is missing");
}

TEST(ZipDirectory, ALocalHeaderThatPutsTheContentBeyondTheRecordIsRefused) {
  const std::string file = file_of(kContents);
  const ZipDirectory parsed = parse(file).value();
  for (const ZipEntry& entry : parsed.entries) {
    std::string header = file.substr(entry.header_offset_bytes, 30);
    EXPECT_EQ(content_begin(entry, bytes_of(header)).value(), *entry.begin);
    header[28] = header[29] = '\xff';  // the length of a field before the content
    EXPECT_EQ(content_begin(entry, bytes_of(header)).error().code(), Code::kCorrupt);
  }
}

TEST(ZipDirectory, ALocalHeaderOfAnotherRecordIsRefused) {
  const std::string file = file_of(kContents);
  const ZipDirectory parsed = parse(file).value();
  const auto second = bytes_of(file).subspan(parsed.entries[1].header_offset_bytes);
  EXPECT_EQ(content_begin(parsed.entries[0], second).error().code(), Code::kCorrupt);
  EXPECT_EQ(content_begin(parsed.entries[0], {}).error().code(), Code::kCorrupt);
}

TEST(ZipDirectory, KnowsPlacesBeyond4GiB) {
  // Only what stands around the contents is made; the contents are holes.
  ZipLayout layout;
  std::vector<uint64_t> begins;
  const std::string hole(kMiB, '\0');
  const std::vector<uint64_t> sizes = {4 * kGiB, kMiB};
  for (const uint64_t size : sizes) {
    static_cast<void>(layout.begin_record(cat("a/data/", begins.size()), size).value());
    begins.push_back(layout.offset_bytes());
    for (uint64_t at = 0; at < size; at += hole.size()) {
      ASSERT_TRUE(layout.add(bytes_of(hole)).has_value());
    }
    static_cast<void>(layout.end_record().value());
  }
  const uint64_t begin = layout.offset_bytes();
  const std::string directory = layout.finish().value();
  EXPECT_EQ(find_directory(bytes_of(directory), begin + directory.size()).value(), begin);
  const ZipDirectory parsed = parse_directory(bytes_of(directory), begin).value();
  EXPECT_TRUE(parsed.sealed);
  for (size_t i = 0; i < sizes.size(); ++i) {
    EXPECT_EQ(parsed.entries[i].begin, begins[i]);
    EXPECT_EQ(parsed.entries[i].size_bytes, sizes[i]);
  }
}

}  // namespace
}  // namespace headrace
