#include "headrace/format/tar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "headrace/format/gunzip.h"
#include "headrace/format/percent.h"
#include "headrace/format/tar_test_support.h"

namespace headrace {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

struct Found {
  TarMember member;
  std::string data = {};
};

struct Contents {
  std::vector<Found> members = {};
  std::optional<Error> error = {};
  bool has_end = false;
};

// Gives the reader `piece` bytes at a time; those of data only every other time, if `skips`.
Contents read_all(std::string_view archive, size_t piece = SIZE_MAX, bool skips = false,
                  const TarLimits& limits = {}) {
  Contents contents;
  TarReader reader(limits);
  std::string_view rest = archive;
  for (bool skip_next = skips; true;) {
    if (skip_next && reader.data_left_bytes() > 0) {
      const auto count =
          static_cast<size_t>(std::min<uint64_t>({rest.size(), piece, reader.data_left_bytes()}));
      contents.members.back().data += rest.substr(0, count);
      reader.skip(count);
      rest.remove_prefix(count);
    }
    if (skips) skip_next = !skip_next;
    const Result<TarReader::Step> step = reader.next(bytes_of(rest.substr(0, piece)));
    if (!step) {
      contents.error = step.error();
      EXPECT_FALSE(reader.next(bytes_of(rest)).has_value());
      EXPECT_FALSE(reader.finish().has_value());
      return contents;
    }
    EXPECT_LE(step->data.size(), step->consumed);
    rest.remove_prefix(step->consumed);
    switch (step->event) {
      case TarReader::Event::kMember:
        contents.members.push_back({reader.member()});
        EXPECT_EQ(reader.member().data_offset, reader.offset());
        break;
      case TarReader::Event::kData:
        contents.members.back().data.append(reinterpret_cast<const char*>(step->data.data()),
                                            step->data.size());
        break;
      case TarReader::Event::kEnd: contents.has_end = true; return contents;
      case TarReader::Event::kMoreNeeded:
        EXPECT_EQ(reader.offset() / 512, (archive.size() - rest.size()) / 512);
        if (!rest.empty()) continue;
        if (Result<void> done = reader.finish(); !done) contents.error = done.error();
        contents.has_end = reader.has_end();
        return contents;
    }
  }
}

std::string message_of(std::string_view archive, const TarLimits& limits = {}) {
  const Contents contents = read_all(archive, SIZE_MAX, false, limits);
  if (!contents.error) return "no error";
  EXPECT_EQ(contents.error->code(), Code::kCorrupt);
  return contents.error->message();
}

std::string unpacked(const Found& found) {
  if (!found.member.is_sparse) return found.data;
  std::string bytes(found.member.size_bytes, '\0');
  size_t at = 0;
  for (const ByteRange& part : found.member.parts) {
    bytes.replace(part.begin, part.size_bytes(), found.data, at, part.size_bytes());
    at += part.size_bytes();
  }
  return bytes;
}

std::string type_text(TarType type) {
  switch (type) {
    case TarType::kFile: return "file";
    case TarType::kHardLink: return "hard";
    case TarType::kSymLink: return "symbolic";
    case TarType::kCharacterDevice: return "character";
    case TarType::kBlockDevice: return "block";
    case TarType::kDirectory: return "directory";
    case TarType::kPipe: return "pipe";
    case TarType::kOther: return "other";
  }
  return "";
}

// As testing/make_tar_goldens.py describes members.
std::string described(const Found& found) {
  const TarMember& member = found.member;
  std::string name = member.name;
  while (member.type == TarType::kDirectory && name.ends_with('/')) name.pop_back();
  uint32_t crc = 0;
  if (member.type == TarType::kFile) {
    const std::string bytes = unpacked(found);
    EXPECT_EQ(bytes.size(), member.size_bytes);
    crc = static_cast<uint32_t>(
        crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
  }
  std::ostringstream line;
  line << type_text(member.type) << ' ' << member.size_bytes << ' ' << member.header_offset << ' '
       << member.data_offset << ' ' << std::hex << crc << ' ' << name << ' ' << member.link_name;
  return line.str();
}

std::string contents_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The archives by name, and what Python's tarfile finds in them.
std::map<std::string, std::pair<std::string, std::vector<std::string>>> goldens() {
  std::map<std::string, std::pair<std::string, std::vector<std::string>>> found;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(HEADRACE_TESTDATA) / "tar")) {
    if (entry.path().extension() != ".txt") continue;
    const std::string stem = entry.path().stem().string();
    auto& [archive, lines] = found[stem];
    const std::string packed = contents_of(entry.path().parent_path() / (stem + ".tar.gz"));
    archive.resize(gunzipped_bytes(bytes_of(packed), 1 << 26).value());
    EXPECT_TRUE(gunzip(bytes_of(packed), std::as_writable_bytes(std::span(archive))).has_value());
    std::istringstream text(contents_of(entry.path()));
    for (std::string line; std::getline(text, line);) {
      std::istringstream words(line);
      std::string kind, name, link;
      uint64_t size = 0, header = 0, data = 0;
      uint32_t crc = 0;
      words >> kind >> size >> header >> data >> std::hex >> crc >> name >> link;
      std::ostringstream expected;
      expected << kind << ' ' << size << ' ' << header << ' ' << data << ' ' << std::hex << crc
               << ' ' << percent_decode(name).value() << ' ' << percent_decode(link).value();
      lines.push_back(expected.str());
    }
  }
  return found;
}

TEST(TarTest, ArchivesOfOtherWritersAreReadAsPythonReadsThem) {
  const auto all = goldens();
  ASSERT_THAT(all, SizeIs(Gt(14u)));
  for (const auto& [name, golden] : all) {
    SCOPED_TRACE(name);
    const Contents contents = read_all(golden.first);
    ASSERT_FALSE(contents.error) << contents.error->message();
    EXPECT_TRUE(contents.has_end);
    std::vector<std::string> found;
    for (const Found& each : contents.members) found.push_back(described(each));
    EXPECT_EQ(found, golden.second);
    EXPECT_FALSE(found.empty());
  }
}

TEST(TarTest, ArchivesMayComeInAnyPieces) {
  for (const auto& [name, golden] : goldens()) {
    SCOPED_TRACE(name);
    const Contents whole = read_all(golden.first);
    for (const size_t piece : {1u, 7u, 511u, 512u, 513u, 4096u}) {
      for (const bool skips : {false, true}) {
        if (piece == 1 && golden.first.size() > 100'000) continue;
        const Contents contents = read_all(golden.first, piece, skips);
        ASSERT_FALSE(contents.error) << contents.error->message();
        ASSERT_EQ(contents.members.size(), whole.members.size());
        for (size_t i = 0; i < whole.members.size(); ++i) {
          ASSERT_EQ(contents.members[i].data, whole.members[i].data);
          ASSERT_EQ(contents.members[i].member.name, whole.members[i].member.name);
        }
      }
    }
  }
}

TEST(TarTest, AnIndexIsMadeFromHeadersAloneAndEachMemberIsReadByItself) {
  for (const auto& [name, golden] : goldens()) {
    SCOPED_TRACE(name);
    const std::string_view archive = golden.first;
    const Contents whole = read_all(archive);
    TarReader reader;
    std::vector<TarMember> members;
    while (true) {
      const std::string_view rest = archive.substr(reader.offset());
      const TarReader::Step step = reader.next(bytes_of(rest)).value();
      if (step.event != TarReader::Event::kMember) break;
      members.push_back(reader.member());
      reader.skip(reader.next_header_offset() - reader.offset());
    }
    EXPECT_TRUE(reader.has_end());
    ASSERT_EQ(members.size(), whole.members.size());
    for (size_t i = 0; i < members.size(); ++i) {
      EXPECT_EQ(archive.substr(members[i].data_offset, members[i].stored_bytes),
                whole.members[i].data);
      TarReader alone({}, members[i].header_offset);
      const TarReader::Step step =
          alone.next(bytes_of(archive.substr(members[i].header_offset))).value();
      EXPECT_EQ(step.event, TarReader::Event::kMember);
      // Global headers before it are left out, which these archives use for comments.
      EXPECT_EQ(alone.member().name, members[i].name);
      EXPECT_EQ(alone.member().data_offset, members[i].data_offset);
    }
  }
}

TEST(TarTest, ATornArchiveSaysWhereItEnds) {
  for (const auto& [name, golden] : goldens()) {
    SCOPED_TRACE(name);
    const Contents whole = read_all(golden.first);
    const uint64_t end =
        whole.members.back().member.data_offset + tar_padded(whole.members.back().data).size();
    size_t complete = 0;
    for (uint64_t cut = 0; cut < end; cut += end > 100'000 ? 4099 : 101) {
      const Contents torn = read_all(golden.first.substr(0, cut));
      if (torn.error) {
        EXPECT_THAT(torn.error->message(), AllOf(HasSubstr("torn"), HasSubstr(cat("byte ", cut))));
        continue;
      }
      EXPECT_FALSE(torn.has_end);  // between two members
      ++complete;
    }
    EXPECT_GE(complete, 1u);  // of nothing
  }
}

TEST(TarTest, TheEndIsTwoBlocksOfZerosOrFewer) {
  const std::string one = tar_file("a", "x");
  for (const std::string& end : {tar_end(), tar_end() + "whatever", std::string(512, '\0')}) {
    const Contents contents = read_all(one + end);
    EXPECT_FALSE(contents.error);
    EXPECT_TRUE(contents.has_end);
    EXPECT_THAT(contents.members, SizeIs(1));
  }
  EXPECT_FALSE(read_all(one).has_end);
  EXPECT_FALSE(read_all(one).error);
  EXPECT_THAT(message_of(one + std::string(512, '\0') + one), HasSubstr("a lone block of zeros"));
  EXPECT_THAT(message_of(pax_header(pax_record("path", "b")) + tar_end()),
              HasSubstr("between the headers"));
}

TEST(TarTest, AnEmptyArchiveHasNoMembers) {
  EXPECT_THAT(read_all("").members, IsEmpty());
  EXPECT_FALSE(read_all("").error);
  EXPECT_THAT(read_all(tar_end()).members, IsEmpty());
}

TEST(TarTest, ChecksumsMayBeOfSignedBytes) {
  std::string header = tar_header("caf\xe9", 0);
  EXPECT_THAT(read_all(header).members, SizeIs(1));
  const uint64_t sum = std::stoull(header.substr(148, 6), nullptr, 8);
  header.replace(148, 8, tar_octal(sum - 256, 7) + ' ');
  EXPECT_THAT(read_all(header).members, SizeIs(1));
  header.replace(148, 8, tar_octal(sum - 255, 7) + ' ');
  EXPECT_THAT(message_of(header), AllOf(HasSubstr("checksum"), HasSubstr("byte 512")));
}

TEST(TarTest, NumbersMayBeOctalOrBinary) {
  std::string header = tar_header("a", 0);
  const auto size_of = [&header](std::string_view field) -> std::string {
    header.replace(124, 12, field);
    tar_sum(header);
    const Contents contents = read_all(header);
    if (contents.members.empty()) return contents.error->message();
    return std::to_string(contents.members[0].member.size_bytes);
  };
  using std::string_view_literals::operator""sv;
  EXPECT_EQ(size_of("000000000010"), "8");
  EXPECT_EQ(size_of("00000000010 "), "8");
  EXPECT_EQ(size_of("        010\0"sv), "8");
  EXPECT_EQ(size_of("10\0\0\0\0\0\0\0\0\0\0"sv), "8");
  EXPECT_EQ(size_of(std::string(12, '\0')), "0");
  EXPECT_EQ(size_of("777777777777"), "68719476735");
  EXPECT_EQ(size_of("\x80\0\0\0\0\0\0\x02\0\0\0\x05"sv), "8589934597");
  EXPECT_THAT(size_of("00000000018\0"sv), HasSubstr("no number"));
  EXPECT_THAT(size_of("-0000000010\0"sv), HasSubstr("no number"));
  EXPECT_THAT(size_of(std::string(12, '\xff')), HasSubstr("no number"));
  EXPECT_THAT(size_of("\x80\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"sv),
              HasSubstr("no number"));
  EXPECT_THAT(size_of("\x80\0\0\0\x3f\xff\xff\xff\xff\xff\xff\xff"sv),
              HasSubstr("larger than any"));
}

TEST(TarTest, AnExtendedHeaderIsForOneMemberAndAGlobalOneForAllThatFollow) {
  const std::string archive =
      pax_header(pax_record("path", "all") + pax_record("comment", "x"), 'g') + tar_file("a", "1") +
      pax_header(pax_record("path", "one") + pax_record("size", "3")) + tar_header("b", 9) +
      tar_padded("abc") + tar_file("c", "2") + pax_header(pax_record("path", ""), 'g') +
      tar_file("d", "3") + tar_end();
  const Contents contents = read_all(archive);
  ASSERT_FALSE(contents.error) << contents.error->message();
  std::vector<std::string> names, data;
  for (const Found& found : contents.members) {
    names.push_back(found.member.name);
    data.push_back(found.data);
  }
  EXPECT_THAT(names, ElementsAre("all", "one", "all", "d"));
  EXPECT_THAT(data, ElementsAre("1", "abc", "2", "3"));
}

TEST(TarTest, ExtendedHeadersThatAreNoneAreRefused) {
  for (const std::string_view records :
       {"5 a=b", "6 a=b\n1", "99 a=b\n", "4 =\n", "5 ab\n", "x a=b\n", " 6 a=b\n",
        "99999999999999999999 a=b\n", "0 a=b\n", "2 a=b\n", "6a=b\n"}) {
    EXPECT_THAT(message_of(pax_header(records) + tar_file("a", "")),
                HasSubstr("record of an extended header"))
        << records;
  }
  const auto with = [](std::string_view key, std::string_view value) {
    return message_of(pax_header(pax_record(key, value)) + tar_file("a", ""));
  };
  EXPECT_EQ(with("comment", "anything\n = \xff"), "no error");
  EXPECT_THAT(with("size", "-1"), HasSubstr("number in an extended header"));
  EXPECT_THAT(with("size", "18446744073709551617"), HasSubstr("number in an extended header"));
  EXPECT_THAT(with("size", "4611686018427387000"), HasSubstr("larger than any"));
  EXPECT_THAT(with("path", std::string_view("a\0b", 3)), HasSubstr("NUL"));
}

TEST(TarTest, WhatIsTooLongIsRefusedBeforeItComes) {
  const TarLimits limits{.max_name_bytes = 1000, .max_pax_bytes = 2000, .max_parts = 2};
  EXPECT_THAT(message_of(tar_header("", 1001, 'L'), limits), HasSubstr("a name is longer"));
  EXPECT_THAT(message_of(tar_header("", 1001, 'K'), limits), HasSubstr("a name is longer"));
  EXPECT_THAT(message_of(tar_header("", 2001, 'x'), limits), HasSubstr("header is longer"));
  EXPECT_THAT(message_of(tar_header("", 2001, 'g'), limits), HasSubstr("header is longer"));
  EXPECT_THAT(message_of(pax_header(pax_record("path", std::string(1001, 'x'))), limits),
              HasSubstr("a name is longer"));
  const std::string sparse =
      pax_header(pax_record("GNU.sparse.major", "1") + pax_record("GNU.sparse.minor", "0") +
                 pax_record("GNU.sparse.realsize", "9"));
  EXPECT_THAT(message_of(sparse + tar_header("a", 512) + tar_padded("3\n"), limits),
              HasSubstr("more parts"));
}

TEST(TarTest, MapsOfSparseFilesThatCannotBeAreRefused) {
  const auto with_map = [](std::string_view map, std::string_view size, uint64_t stored) {
    return message_of(
        pax_header(pax_record("GNU.sparse.map", map) + pax_record("GNU.sparse.size", size)) +
        tar_header("a", stored) + std::string(stored, 'x') + tar_end());
  };
  EXPECT_EQ(with_map("0,512,1000,512", "2000", 1024), "no error");
  EXPECT_EQ(with_map("", "2000", 0), "no error");
  EXPECT_THAT(with_map("0,512,100,512", "2000", 1024), HasSubstr("overlap"));
  EXPECT_THAT(with_map("1000,512,0,512", "2000", 1024), HasSubstr("overlap"));
  EXPECT_THAT(with_map("0,1024", "1000", 1024), HasSubstr("beyond its end"));
  EXPECT_THAT(with_map("4611686018427387900,1024", "4611686018427387903", 1024),
              HasSubstr("beyond its end"));
  EXPECT_THAT(with_map("0,512", "2000", 1024), HasSubstr("not as long"));
  EXPECT_THAT(with_map("0,512,7", "2000", 512), HasSubstr("map of a sparse file"));
  EXPECT_THAT(with_map("0,,", "2000", 512), HasSubstr("map of a sparse file"));
  EXPECT_THAT(message_of(pax_header(pax_record("GNU.sparse.map", "0,512")) + tar_header("a", 512)),
              HasSubstr("without its size"));
  EXPECT_THAT(message_of(pax_header(pax_record("GNU.sparse.numbytes", "1")) + tar_header("a", 0)),
              HasSubstr("map of a sparse file"));
  const std::string newest =
      pax_header(pax_record("GNU.sparse.major", "1") + pax_record("GNU.sparse.realsize", "9"));
  for (const std::string_view map : {"x\n", "\n", "1 \n", "2\n1\n1\n"}) {
    EXPECT_THAT(message_of(newest + tar_header("a", 512) + tar_padded(map) + tar_end()),
                HasSubstr("map of a sparse file"))
        << map;
  }
  EXPECT_THAT(message_of(newest + tar_header("a", 100) + tar_padded("1\n0\n9\n") + tar_end()),
              HasSubstr("cut off"));
}

TEST(TarTest, OnlyFilesAndWhatIsNotKnownHaveData) {
  for (const char type : {'1', '2', '3', '4', '5', '6'}) {
    const Contents contents = read_all(tar_header("a", 700, type) + tar_file("b", "x"));
    ASSERT_THAT(contents.members, SizeIs(2)) << type;
    EXPECT_EQ(contents.members[0].member.size_bytes, 0u);
  }
  for (const char type : {'0', '7', 'D', 'Z'}) {
    const Contents contents =
        read_all(tar_header("a", 700, type) + std::string(1024, 'y') + tar_file("b", "x"));
    ASSERT_THAT(contents.members, SizeIs(2)) << type;
    EXPECT_EQ(contents.members[0].data, std::string(700, 'y'));
  }
}

}  // namespace
}  // namespace headrace
