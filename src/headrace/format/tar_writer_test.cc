#include "headrace/format/tar_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "headrace/format/tar.h"
#include "headrace/format/tar_test_support.h"

namespace headrace {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

std::string headers(std::string_view name, uint64_t size_bytes) {
  std::string out(tar_header_bytes(name, size_bytes).value(), '?');
  write_tar_headers(name, size_bytes, std::as_writable_bytes(std::span(out)));
  return out;
}

// What a reader makes of headers alone.
TarMember read_back(std::string_view archive) {
  TarReader reader;
  const Result<TarReader::Step> step = reader.next(std::as_bytes(std::span(archive)));
  EXPECT_TRUE(step && step->event == TarReader::Event::kMember) << archive;
  EXPECT_EQ(reader.member().data_offset, archive.size());
  return reader.member();
}

TEST(TarWriter, ShortNamesHaveOneHeader) {
  const TarMember member = read_back(headers("a/b.jpg", 5));
  EXPECT_EQ(member.name, "a/b.jpg");
  EXPECT_EQ(member.size_bytes, 5);
  EXPECT_EQ(member.type, TarType::kFile);
  EXPECT_THAT(headers("a/b.jpg", 5), SizeIs(512));
}

TEST(TarWriter, NamesThatFitIntoTheTwoFieldsOfUstarHaveOneHeader) {
  const std::string name = std::string(155, 'p') + "/" + std::string(100, 'n');
  EXPECT_THAT(headers(name, 1), SizeIs(512));
  EXPECT_EQ(read_back(headers(name, 1)).name, name);
}

TEST(TarWriter, OtherNamesHaveAnExtendedHeader) {
  for (const std::string& name : {std::string(101, 'n'), std::string(156, 'p') + "/a.jpg",
                                  std::string("/") + std::string(100, 'n'),
                                  std::string("bäume.jpg"), std::string(60'000, 'x')}) {
    EXPECT_THAT(headers(name, 1), HasSubstr(" path=" + name + "\n"));
    EXPECT_EQ(read_back(headers(name, 1)).name, name);
  }
}

TEST(TarWriter, SizesThatOctalDigitsCannotSayHaveAnExtendedHeader) {
  constexpr uint64_t kMost = (uint64_t{1} << 33) - 1;
  EXPECT_THAT(headers("a.bin", kMost), SizeIs(512));
  EXPECT_EQ(read_back(headers("a.bin", kMost)).size_bytes, kMost);
  EXPECT_THAT(headers("a.bin", kMost + 1), HasSubstr("19 size=8589934592\n"));
  EXPECT_EQ(read_back(headers("a.bin", kMost + 1)).size_bytes, kMost + 1);
}

TEST(TarWriter, RecordsCountTheirOwnLength) {
  // Around the lengths at which a record's length gets another digit.
  for (size_t size = 85; size < 110; ++size) {
    const std::string name = "é" + std::string(size, 'n');
    EXPECT_THAT(headers(name, 0), HasSubstr(pax_record("path", name)));
  }
}

TEST(TarWriter, NamesThatNoFileCanHaveAreRefused) {
  for (const std::string& name :
       {std::string(), std::string("a/"), std::string("a\0b", 3), std::string(70'000, 'n')}) {
    EXPECT_EQ(tar_header_bytes(name, 1).error().code(), Code::kInvalidArgument);
  }
}

TEST(TarWriter, WhatItWritesIsReadBack) {
  std::mt19937_64 random(1);  // the same in each run
  const std::vector<std::string> letters = {"a", "Z", "/", ".", "ß", "字", " ", "\n", "="};
  std::string archive;
  std::vector<std::pair<std::string, uint64_t>> wanted;
  for (int i = 0; i < 300; ++i) {
    std::string name = cat(i);
    for (size_t left = random() % 400; left > 0; --left) {
      name += letters[random() % (left % 3 == 0 ? letters.size() : 3)];
    }
    name += ".x";
    const uint64_t size_bytes = random() % 3000;
    archive += headers(name, size_bytes);
    EXPECT_EQ(archive.size() % 512, 0);
    archive += tar_padded(std::string(size_bytes, 'd'));
    EXPECT_EQ(tar_padded_bytes(size_bytes), tar_padded(std::string(size_bytes, 'd')).size());
    wanted.emplace_back(std::move(name), size_bytes);
  }
  archive += std::string(kTarEndBytes, '\0');
  std::vector<std::pair<std::string, uint64_t>> found;
  TarReader reader;
  std::span<const std::byte> rest = std::as_bytes(std::span(archive));
  while (true) {
    const TarReader::Step step = reader.next(rest).value();
    rest = rest.subspan(step.consumed);
    if (step.event == TarReader::Event::kMember) {
      found.emplace_back(reader.member().name, reader.member().size_bytes);
    }
    if (step.event == TarReader::Event::kEnd || step.event == TarReader::Event::kMoreNeeded) break;
  }
  EXPECT_TRUE(reader.has_end());
  EXPECT_EQ(found, wanted);
}

}  // namespace
}  // namespace headrace
