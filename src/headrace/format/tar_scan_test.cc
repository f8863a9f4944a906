#include "headrace/format/tar_scan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "headrace/format/tar_test_support.h"

namespace headrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Found {
  std::vector<std::string> names;
  std::vector<std::string> contents;
  std::vector<std::string> warnings;
  size_t requests = 0;
  uint64_t read_bytes = 0;
};

Result<Found> scan(const std::string& archive) {
  Found found;
  TarScan scan(archive.size());
  uint64_t end = 0;
  while (const std::optional<ByteRange> wanted = scan.wanted()) {
    EXPECT_GE(wanted->begin, end);
    EXPECT_LE(wanted->end, archive.size());
    end = wanted->end;
    ++found.requests;
    found.read_bytes += wanted->size_bytes();
    const Result<void> taken =
        scan.take(std::as_bytes(std::span(archive)).subspan(wanted->begin, wanted->size_bytes()));
    if (!taken) {
      EXPECT_FALSE(scan.wanted());
      return std::unexpected(taken.error());
    }
  }
  found.warnings = scan.warnings();
  for (size_t i = 0; i < scan.files().size(); ++i) {
    const ByteRange range = scan.files().range(i);
    found.names.emplace_back(scan.files().name(i));
    found.contents.push_back(archive.substr(range.begin, range.size_bytes()));
  }
  return found;
}

std::string repeated(size_t count, const std::string& each) {
  std::string out;
  for (size_t i = 0; i < count; ++i) out += each;
  return out;
}

MATCHER_P2(Refuses, code, text, "") {
  if (arg) return false;
  *result_listener << arg.error().to_string();
  return arg.error().code() == code &&
         ::testing::ExplainMatchResult(HasSubstr(text), arg.error().to_string(), result_listener);
}

TEST(TarScan, FindsTheFilesOfRandomArchives) {
  std::mt19937 random(1);  // the same in each run
  const auto up_to = [&random](size_t most) {
    return static_cast<size_t>(std::uniform_int_distribution<size_t>(0, most)(random));
  };
  for (int round = 0; round < 200; ++round) {
    std::string archive;
    std::vector<std::string> names, contents;
    const size_t most = std::array<size_t, 4>{0, 2000, 70'000, 300'000}[up_to(3)];
    for (size_t i = up_to(30); i > 0; --i) {
      const std::string name = cat(i, std::string(up_to(5) == 0 ? up_to(400) : up_to(60), 'n'));
      const std::string content(up_to(most), static_cast<char>('a' + i % 26));
      switch (up_to(5)) {
        case 0: archive += tar_header(cat("folder", i, "/"), 0, '5'); break;
        case 1:
          archive += pax_header(pax_record("path", name)) + tar_header("short", content.size()) +
                     tar_padded(content);
          names.push_back(name);
          contents.push_back(content);
          break;
        default:
          archive += tar_file(name, content);
          names.push_back(name);
          contents.push_back(content);
      }
    }
    if (up_to(2) > 0 || archive.empty()) archive += tar_end();
    if (up_to(2) == 0) archive.resize((archive.size() + 10'239) / 10'240 * 10'240, '\0');
    const Result<Found> found = scan(archive);
    ASSERT_TRUE(found) << found.error().message();
    EXPECT_EQ(found->names, names);
    EXPECT_EQ(found->contents, contents);
  }
}

TEST(TarScan, ReadsOneHundredthWhereFilesAreLarge) {
  const std::string archive =
      repeated(60, tar_file("large", std::string(100 * kKiB, 'x'))) + tar_end();
  const Found found = scan(archive).value();
  EXPECT_EQ(found.names.size(), 60u);
  EXPECT_LE(found.read_bytes * 100, archive.size());
  EXPECT_LE(found.requests, 61u);
}

TEST(TarScan, ReadsThreeBlocksOfEachLargeFileWithAnExtendedHeader) {
  const std::string file =
      pax_header(pax_record("mtime", "1.5")) + tar_file("large", std::string(200 * kKiB, 'x'));
  const std::string archive = repeated(60, file) + tar_end();
  const Found found = scan(archive).value();
  EXPECT_EQ(found.names.size(), 60u);
  EXPECT_LE(found.read_bytes * 100, archive.size());
  EXPECT_LE(found.requests, 61u);
}

TEST(TarScan, ReadsASampleOfALargeFileAndSmallOnesByOneRequest) {
  const std::string sample = tar_file("1.jpg", std::string(150 * kKiB, 'x')) +
                             tar_file("1.cls", "7") + tar_file("1.json", std::string(300, '{'));
  const Found found = scan(repeated(60, sample) + tar_end()).value();
  EXPECT_EQ(found.names.size(), 180u);
  EXPECT_LE(found.requests, 63u);
}

TEST(TarScan, ReadsOnWhereFilesAreSmall) {
  const std::string archive = repeated(3000, tar_file("small", std::string(1000, 'x'))) + tar_end();
  const Found found = scan(archive).value();
  EXPECT_EQ(found.names.size(), 3000u);
  EXPECT_LE(found.requests, 12u);  // of 4.6 MB
}

TEST(TarScan, LearnsAnewWhenFilesBecomeLarge) {
  const std::string archive = repeated(2000, tar_file("small", std::string(1000, 'x'))) +
                              repeated(200, tar_file("large", std::string(100 * kKiB, 'x'))) +
                              tar_end();
  const Found found = scan(archive).value();
  EXPECT_EQ(found.names.size(), 2200u);
  EXPECT_LE(found.read_bytes, 3 * kMiB + 2 * kMiB + kMiB / 2);
}

std::string link(std::string_view name, std::string_view to) {
  std::string header = tar_header(name, 0, '1');
  header.replace(157, to.size(), to);
  tar_sum(header);
  return header;
}

TEST(TarScan, FollowsHardLinksToTheNewestFileOfTheName) {
  const Found found =
      scan(tar_file("a", "1") + tar_file("a", "22") + link("b", "a") + link("c", "b") + tar_end())
          .value();
  EXPECT_THAT(found.names, ElementsAre("a", "a", "b", "c"));
  EXPECT_THAT(found.contents, ElementsAre("1", "22", "22", "22"));
  EXPECT_THAT(scan(link("b", "a") + tar_file("a", "1") + tar_end()),
              Refuses(Code::kCorrupt, "'b', whose header is at byte 0, is a hard link to 'a'"));
}

TEST(TarScan, PassesOverWhatIsNoFile) {
  const Found found = scan(tar_header("folder/", 0, '5') + tar_header("link", 0, '2') +
                           tar_header("pipe", 0, '6') + tar_file("a", "1") + tar_end())
                          .value();
  EXPECT_THAT(found.names, ElementsAre("a"));
}

TEST(TarScan, PassesOverHardLinksToWhatIsNoFileAndTellsOfThem) {
  const Found found = scan(tar_file("a", "1") + tar_header("a", 0, '2') + link("b", "a") +
                           link("c", "b") + tar_file("a", "22") + link("d", "a") + tar_end())
                          .value();
  EXPECT_THAT(found.names, ElementsAre("a", "a", "d"));
  EXPECT_THAT(found.contents, ElementsAre("1", "22", "22"));
  EXPECT_THAT(found.warnings, ElementsAre(HasSubstr("left out: 'b' and 1 more")));
}

TEST(TarScan, PassesOverAHardLinkToItself) {
  const Found found = scan(tar_file("a", "1") + link("a", "a") + tar_end()).value();
  EXPECT_THAT(found.names, ElementsAre("a"));
  EXPECT_THAT(scan(link("a", "a") + tar_end()), Refuses(Code::kCorrupt, "hard link to 'a'"));
}

TEST(TarScan, TellsOfAnArchiveWithoutAnEnd) {
  for (const size_t size : {100u, 200'000u}) {
    const std::string archive = repeated(5, tar_file("a", std::string(size, 'x')));
    EXPECT_THAT(scan(archive).value().warnings,
                ElementsAre(HasSubstr(cat("it ends after ", archive.size(), " bytes without"))));
    EXPECT_EQ(scan(archive).value().names.size(), 5u);
    EXPECT_THAT(scan(archive + tar_end()).value().warnings, ElementsAre());
    // One block of zeros is an end, too.
    EXPECT_THAT(scan(archive + tar_end().substr(512)).value().warnings, ElementsAre());
  }
}

TEST(TarScan, TellsOfWhatFollowsTheEnd) {
  const auto padded = [](std::string archive) {
    archive.resize((archive.size() + 10'239) / 10'240 * 10'240, '\0');
    return archive;
  };
  for (const size_t size : {100u, 9'216u - 512, 200'000u}) {
    const std::string first = tar_file("a", std::string(size, 'x')) + tar_end();
    const std::string second = tar_file("b", "1") + tar_end();
    const Found alone = scan(padded(first)).value();
    EXPECT_THAT(alone.warnings, ElementsAre());
    for (const std::string& both : {padded(first) + padded(second), padded(first) + second}) {
      const Found found = scan(both).value();
      EXPECT_THAT(found.names, ElementsAre("a"));
      EXPECT_THAT(found.warnings,
                  ElementsAre(HasSubstr(cat("behind its end, at byte ", first.size(), ","))));
    }
    // Zeros are not more, however many there are: one request looks at them.
    const Found zeros = scan(first + std::string(100 * kKiB, '\0')).value();
    EXPECT_THAT(zeros.warnings, ElementsAre());
    EXPECT_LE(zeros.requests, alone.requests + 2);  // and one, since it is no small archive
  }
}

TEST(TarScan, RefusesWhatIsNoTar) {
  EXPECT_THAT(scan(""), Refuses(Code::kCorrupt, "empty"));
  EXPECT_THAT(scan(std::string(2000, 'x')), Refuses(Code::kCorrupt, "before byte 512"));
  EXPECT_THAT(scan(tar_file("a", "1").substr(0, 300)), Refuses(Code::kCorrupt, ""));
}

TEST(TarScan, RefusesAnArchiveThatIsCut) {
  const std::string archive =
      tar_file("a", std::string(5000, 'x')) + tar_file("b", std::string(200 * kKiB, 'x'));
  EXPECT_THAT(scan(archive.substr(0, 100'000)),
              Refuses(Code::kCorrupt, "'b', whose header is at byte 5632, has 204800 bytes"));
  // In the middle of a header, and between the headers of one member.
  EXPECT_THAT(scan(archive.substr(0, 5632 + 100)), Refuses(Code::kCorrupt, ""));
  const std::string headers = pax_header(pax_record("path", "b"));
  EXPECT_THAT(scan(archive.substr(0, 5632) + headers), Refuses(Code::kCorrupt, ""));
}

TEST(TarScan, RefusesASizeBehindTheEnd) {
  const std::string archive =
      tar_file("a", "1") + tar_header("b", uint64_t{1} << 32) + std::string(4096, 'x');
  EXPECT_THAT(scan(archive), Refuses(Code::kCorrupt,
                                     "'b', whose header is at byte 1024, has "
                                     "4294967296 bytes, and the archive ends "
                                     "after 4096 of them"));
}

TEST(TarScan, RefusesWhatIsCompressed) {
  for (const auto& [begin, name] : std::vector<std::pair<std::string, std::string>>{
           {"\x1f\x8b\x08", "gzip"}, {"\x28\xb5\x2f\xfd", "zstd"}, {"BZh9", "bzip2"}}) {
    for (const size_t size : {100u, 1000u, 200'000u}) {
      EXPECT_THAT(scan(begin + std::string(size, 'x')), Refuses(Code::kInvalidArgument, name));
    }
  }
}

TEST(TarScan, TakesATarWhoseFirstNameBeginsAsACompressedFileDoes) {
  const Found found = scan(tar_file("BZhang/1.jpg", "1") + tar_end()).value();
  EXPECT_THAT(found.names, ElementsAre("BZhang/1.jpg"));
}

TEST(TarScan, RefusesSparseFiles) {
  std::string header = tar_header("holes", 512, 'S');
  header.replace(386, 24, tar_octal(0, 12) + tar_octal(512, 12));
  header.replace(483, 12, tar_octal(9000, 12));
  tar_sum(header);
  EXPECT_THAT(scan(header + std::string(512, 'x') + tar_end()),
              Refuses(Code::kInvalidArgument, "'holes', whose header is at byte 0, is a sparse"));
}

TEST(TarScan, RefusesBytesThatItHasNotAskedFor) {
  TarScan scan(5000);
  EXPECT_FALSE(scan.take({}));
  EXPECT_FALSE(scan.wanted());
}

}  // namespace
}  // namespace headrace
