#include "headrace/dataset/shard_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headrace/format/tar_test_support.h"

namespace headrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::span<const std::byte> view(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string text_of(const ShardSample& sample, size_t field) {
  const Block& block = sample.fields[sample.fields[field].same_as.value_or(field)].block;
  return {reinterpret_cast<const char*>(block.data()), block.size_bytes()};
}

// "key:field=bytes,field=bytes"
std::string told(const ShardSample& sample) {
  std::string out = sample.key + ":";
  for (size_t i = 0; i < sample.fields.size(); ++i) {
    out += cat(i == 0 ? "" : ",", sample.fields[i].name, "=", text_of(sample, i));
  }
  return out;
}

class ShardParserTest : public ::testing::Test {
 protected:
  Result<std::vector<std::string>> parse(std::string_view tar, size_t piece_bytes = SIZE_MAX,
                                         ShardParser::Options options = {}) {
    std::string_view rest = tar.substr(std::min<size_t>(options.offset, tar.size()));
    parser_.emplace(pool_, std::move(options));
    samples_.clear();
    while (!rest.empty()) {
      const std::string_view piece = rest.substr(0, piece_bytes);
      rest.remove_prefix(piece.size());
      if (Result<void> taken = parser_->take(view(piece), samples_); !taken) {
        return std::unexpected(taken.error());
      }
    }
    if (Result<void> finished = parser_->finish(samples_); !finished) {
      return std::unexpected(finished.error());
    }
    std::vector<std::string> out;
    for (const ShardSample& sample : samples_) out.push_back(told(sample));
    return out;
  }
  Error error_of(std::string_view tar, ShardParser::Options options = {}) {
    return parse(tar, SIZE_MAX, std::move(options)).error();
  }

  std::shared_ptr<BlockPool> pool_ = BlockPool::create(64 * kMiB);
  std::optional<ShardParser> parser_;
  std::vector<ShardSample> samples_;
};

const std::string kThree = tar_file("0.a", "x") + tar_file("0.b", "yy") + tar_file("README", "no") +
                           tar_file("1.a", std::string(600, 'z')) + tar_file("2.a", "") + tar_end();

TEST_F(ShardParserTest, GivesTheSameSamplesHoweverTheBytesAreCut) {
  for (const size_t piece_bytes : {size_t{1}, size_t{511}, size_t{513}, SIZE_MAX}) {
    EXPECT_THAT(parse(kThree, piece_bytes).value(),
                ElementsAre("0:a=x,b=yy", "1:a=" + std::string(600, 'z'), "2:a="));
    EXPECT_THAT(parser_->warnings(), IsEmpty());
    EXPECT_EQ(parser_->left_out_count(), 1u);
    EXPECT_EQ(parser_->first_left_out(), "README");
  }
  samples_.clear();
  EXPECT_EQ(pool_->live_bytes(), 0u);
}

TEST_F(ShardParserTest, ContinuesBehindAnySample) {
  const std::vector<std::string> all = parse(kThree).value();
  const std::vector<ShardSample> samples = std::move(samples_);
  for (size_t i = 0; i < samples.size(); ++i) {
    const std::vector<std::string> rest =
        parse(kThree, 100, {.number = i + 1, .offset = samples[i].next_offset, .first = i + 1})
            .value();
    EXPECT_EQ(rest, std::vector(all.begin() + static_cast<ptrdiff_t>(i) + 1, all.end()));
    EXPECT_THAT(parser_->warnings(), IsEmpty());
    for (const ShardSample& each : samples_) EXPECT_EQ(each.key, std::to_string(each.number));
  }
}

TEST_F(ShardParserTest, PassesOverSamplesWithoutMemory) {
  EXPECT_THAT(parse(kThree, 300, {.first = 2}).value(), ElementsAre("2:a="));
  EXPECT_EQ(pool_->use().peak_live_bytes, 0u);
}

TEST_F(ShardParserTest, BeginsAtAKey) {
  const ShardParser::Options options{.number = 1, .offset = 1024, .first_key = "1", .first = 1};
  EXPECT_THAT(parse(kThree, 300, options).value(),
              ElementsAre("1:a=" + std::string(600, 'z'), "2:a="));
  ShardParser::Options other = options;
  other.first_key = "7";
  EXPECT_THAT(error_of(kThree, other).message(), HasSubstr("no sample '7'"));
}

TEST_F(ShardParserTest, BehindAGlobalHeaderOneBeginsAtTheBeginning) {
  const std::string global = pax_header(pax_record("comment", "of all"), 'g');
  ASSERT_EQ(parse(global + kThree).value().size(), 3u);
  for (const ShardSample& sample : samples_) EXPECT_EQ(sample.next_offset, 0u);
}

TEST_F(ShardParserTest, AHardLinkIsTheFieldThatItLeadsTo) {
  std::string link = tar_header("0.b", 0, '1');
  link.replace(157, 3, "0.a");
  tar_sum(link);
  EXPECT_THAT(parse(tar_file("0.a", "x") + link + tar_end()).value(), ElementsAre("0:a=x,b=x"));
  EXPECT_EQ(samples_[0].fields[1].same_as, 0u);
  std::string far = tar_header("1.b", 0, '1');
  far.replace(157, 3, "0.a");
  tar_sum(far);
  EXPECT_THAT(error_of(tar_file("0.a", "x") + far + tar_end()).message(),
              HasSubstr("not in the same sample"));
  std::string self = tar_header("0.a", 0, '1');
  self.replace(157, 3, "0.a");
  tar_sum(self);
  EXPECT_THAT(parse(tar_file("0.a", "x") + self + tar_end()).value(), ElementsAre("0:a=x"));
}

TEST_F(ShardParserTest, LinksToLinksAreLeftOut) {
  std::string symbolic = tar_header("0.b", 0, '2');
  std::string hard = tar_header("0.c", 0, '1');
  hard.replace(157, 3, "0.b");
  tar_sum(hard);
  EXPECT_THAT(parse(tar_file("0.a", "x") + symbolic + hard + tar_end()).value(),
              ElementsAre("0:a=x"));
  EXPECT_EQ(parser_->first_left_out(), "0.c");
}

TEST_F(ShardParserTest, ASparseFileHasItsZeros) {
  const std::string records =
      pax_record("GNU.sparse.size", "10") + pax_record("GNU.sparse.offset", "2") +
      pax_record("GNU.sparse.numbytes", "3") + pax_record("GNU.sparse.offset", "9") +
      pax_record("GNU.sparse.numbytes", "1");
  const std::string tar = pax_header(records) + tar_file("0.a", "abcd") + tar_end();
  for (const size_t piece_bytes : {size_t{1}, SIZE_MAX}) {
    EXPECT_THAT(parse(tar, piece_bytes).value(),
                ElementsAre("0:a=" + std::string("\0\0abc\0\0\0\0d", 10)));
  }
}

// A small piece of a tar may begin many of them before anyone can take the samples.
TEST_F(ShardParserTest, SparseFilesOfOnePieceTakeNoMoreThanASampleMay) {
  const std::string records = pax_record("GNU.sparse.size", "600") +
                              pax_record("GNU.sparse.offset", "0") +
                              pax_record("GNU.sparse.numbytes", "1");
  std::string tar;
  for (const char* const name : {"0.a", "1.a", "2.a"}) {
    tar += pax_header(records) + tar_file(name, "x");
  }
  tar += tar_end();
  const Error refused = error_of(tar, {.max_sample_bytes = 1000});
  EXPECT_EQ(refused.code(), Code::kExhausted);
  EXPECT_THAT(refused.message(), HasSubstr("the sparse members beside it"));
  EXPECT_EQ(parse(tar, 512, {.max_sample_bytes = 1000}).value().size(), 3u);
  EXPECT_EQ(parse(tar, SIZE_MAX, {.max_sample_bytes = 1800}).value().size(), 3u);
}

TEST_F(ShardParserTest, TakesTheWantedFieldsAlone) {
  const std::string tar =
      tar_file("0.a", "x") + tar_file("0.b", "yy") + tar_file("0.c", "z") + tar_end();
  EXPECT_THAT(parse(tar, SIZE_MAX, {.fields = {"c", "a"}}).value(), ElementsAre("0:a=x,c=z"));
  EXPECT_THAT(error_of(tar, {.fields = {"d"}}).message(), HasSubstr("has no field 'd'"));
}

TEST_F(ShardParserTest, RefusesMembersThatLieAboutTheirSizes) {
  const std::string large = tar_header("0.a", 1 << 20) + std::string(512, 'x') + tar_end();
  EXPECT_THAT(error_of(large, {.tar_bytes = large.size()}).message(),
              HasSubstr("the archive ends after"));
  EXPECT_EQ(error_of(large).code(), Code::kCorrupt);  // where nobody knows before the end
  const Error refused = error_of(large, {.max_sample_bytes = 1000});
  EXPECT_EQ(refused.code(), Code::kExhausted);
  EXPECT_THAT(refused.message(), HasSubstr("memory_budget_bytes"));
  const std::string two =
      tar_file("0.a", std::string(600, 'x')) + tar_file("0.b", std::string(600, 'x')) + tar_end();
  EXPECT_EQ(error_of(two, {.max_sample_bytes = 1000}).code(), Code::kExhausted);
  EXPECT_TRUE(parse(two, SIZE_MAX, {.max_sample_bytes = 1200}).has_value());
}

TEST_F(ShardParserTest, RefusesWhatIsNoWholeTar) {
  EXPECT_THAT(error_of("").message(), HasSubstr("empty"));
  EXPECT_EQ(error_of(std::string(2000, 'x')).code(), Code::kCorrupt);
  EXPECT_EQ(error_of(kThree.substr(0, 3700)).code(), Code::kCorrupt);
  EXPECT_THAT(samples_, ::testing::SizeIs(1));  // what came before it is whole
}

TEST_F(ShardParserTest, WarnsOfWhatMayBeMissing) {
  EXPECT_EQ(parse(tar_file("0.a", "x")).value().size(), 1u);
  EXPECT_THAT(parser_->warnings(), ElementsAre(HasSubstr("two blocks of zeros")));
  EXPECT_EQ(parse(tar_file("0.a", "x") + tar_end() + kThree).value().size(), 1u);
  EXPECT_THAT(parser_->warnings(), ElementsAre(HasSubstr("more follows behind its end")));
}

}  // namespace
}  // namespace headrace
