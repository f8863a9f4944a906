#include "headrace/store/listing/key_ranges.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <set>

namespace headrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Names = std::set<std::string>;
using Request = KeyRanges::Request;

std::string padded(uint64_t number, size_t width) {
  const std::string digits = std::to_string(number);
  return std::string(width - std::min(width, digits.size()), '0') + digits;
}

uint64_t mixed(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

std::string utf8(char32_t c) {
  std::string out;
  const auto put = [&out](char32_t bits) { out += static_cast<char>(bits); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | (c >> 6)), put(0x80 | (c & 63));
  } else if (c < 0x10000) {
    put(0xE0 | (c >> 12)), put(0x80 | ((c >> 6) & 63)), put(0x80 | (c & 63));
  } else {
    put(0xF0 | (c >> 18)), put(0x80 | ((c >> 12) & 63)), put(0x80 | ((c >> 6) & 63)),
        put(0x80 | (c & 63));
  }
  return out;
}

// A character of all of Unicode; no surrogate.
char32_t code_point(uint64_t number) {
  const auto c = static_cast<char32_t>(1 + number % 1'112'000);
  return c < 0xD800 ? c : c + 0x800;
}

bool is_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const size_t length = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    if (lead >= 0x80 && (lead < 0xC2 || lead > 0xF4)) return false;
    if (i + length > text.size()) return false;
    for (size_t k = 1; k < length; ++k) {
      if ((static_cast<unsigned char>(text[i + k]) & 0xC0) != 0x80) return false;
    }
    // Surrogates.
    if (lead == 0xED && static_cast<unsigned char>(text[i + 1]) >= 0xA0) return false;
    if (lead == 0xF4 && static_cast<unsigned char>(text[i + 1]) >= 0x90) return false;
    i += length;
  }
  return true;
}

// A bucket that answers in pages, and a listing of it in which each request takes one step of time.
class Simulation {
 public:
  Simulation(const Names& names, size_t page_names, size_t slots, uint32_t seed = 1)
      : names_(names), page_names_(page_names), slots_(slots), random_(seed) {}

  std::string prefix, start_offset, end_offset;
  bool cutting = true;
  bool short_pages = false;  // of any number of names, also none
  // After each answer; may change the bucket.
  std::function<void(Names& names, std::mt19937& random)> meanwhile;

  void run() {
    KeyRanges ranges(prefix, start_offset, end_offset, cutting);
    send(ranges);
    while (!under_way_.empty()) {
      ++rounds;
      // The order of answers is not that of requests.
      std::vector<Request> answered = std::move(under_way_);
      under_way_.clear();
      std::ranges::shuffle(answered, random_);
      for (const Request& request : answered) {
        answer(ranges, request);
        send(ranges);
      }
    }
    EXPECT_TRUE(ranges.complete());
    for (const uint64_t range : order_) {
      listed.insert(listed.end(), by_range_[range].begin(), by_range_[range].end());
    }
  }

  std::vector<std::string> listed;
  size_t requests = 0, rounds = 0, most_under_way = 0;

 private:
  void send(KeyRanges& ranges) {
    // What has been answered in this round counts as under way until its end.
    const size_t room = slots_ - std::min(slots_, under_way_.size());
    for (Request& request : ranges.plan(room)) {
      EXPECT_TRUE(is_utf8(request.start_offset)) << request.start_offset;
      EXPECT_TRUE(is_utf8(request.end_offset)) << request.end_offset;
      if (!by_range_.contains(request.range)) {
        by_range_[request.range] = {};
        order_.insert(request.follows == 0 ? order_.begin()
                                           : std::next(std::ranges::find(order_, request.follows)),
                      request.range);
      }
      ++requests;
      under_way_.push_back(std::move(request));
    }
    most_under_way = std::max(most_under_way, under_way_.size());
  }

  void answer(KeyRanges& ranges, const Request& request) {
    if (meanwhile) meanwhile(names_, random_);
    std::string from = std::max(prefix, request.start_offset);
    // A token is "n", and the name before the page, or "=", and its first.
    const bool after_empty = request.page_token.starts_with('=');
    if (!request.page_token.empty()) {
      from = std::max(from, request.page_token.substr(1) + (after_empty ? "" : std::string(1, 0)));
    }
    const size_t limit = short_pages ? after_empty + random_() % page_names_ : page_names_;
    std::vector<std::string> page;
    auto at = names_.lower_bound(from);
    const auto more = [&] {
      return at != names_.end() && at->starts_with(prefix) &&
             (request.end_offset.empty() || *at < request.end_offset);
    };
    for (; more() && page.size() < limit; ++at) page.push_back(*at);
    const std::string token = !more() ? "" : page.empty() ? "=" + *at : "n" + page.back();
    const std::vector<std::string_view> views(page.begin(), page.end());
    const Result<KeyRanges::Kept> kept = ranges.answered(request.range, views, token);
    ASSERT_TRUE(kept.has_value()) << kept.error().to_string();
    std::vector<std::string>& into = by_range_[request.range];
    for (size_t i = kept->begin; i < kept->end; ++i) into.push_back(page[i]);
  }

  Names names_;
  const size_t page_names_, slots_;
  std::mt19937 random_;
  std::vector<Request> under_way_;
  std::list<uint64_t> order_;
  std::map<uint64_t, std::vector<std::string>> by_range_;
};

std::vector<std::string> sorted(const Names& names) { return {names.begin(), names.end()}; }

// ── The shapes that buckets have ─────────────────────────────────────────────────────────────

struct Shape {
  const char* title;
  std::function<std::string(uint64_t, uint64_t count)> name;
};
void PrintTo(const Shape& shape, std::ostream* out) { *out << shape.title; }

std::string hexadecimal(uint64_t number, size_t width) {
  std::string out;
  for (size_t i = width; i-- > 0;) out += "0123456789abcdef"[(number >> (4 * i)) & 15];
  return out;
}

const Shape kShapes[] = {
    {"Numbers", [](uint64_t i, uint64_t) { return padded(i, 7); }},
    {"NumbersOfTwelveDigits", [](uint64_t i, uint64_t) { return padded(i, 12); }},
    {"NumbersWithoutZeros", [](uint64_t i, uint64_t) { return std::to_string(i) + ".jpg"; }},
    {"SamplesOfShards",
     [](uint64_t i, uint64_t) {
       return "train/shard-" + padded(i / 1000, 6) + "/sample-" + padded(i, 7) + ".jpg";
     }},
    {"Uuids",
     [](uint64_t i, uint64_t) {
       std::string hex = hexadecimal(mixed(i), 16) + hexadecimal(mixed(mixed(i)), 16);
       for (const size_t at : {8u, 13u, 18u, 23u}) hex.insert(at, "-");
       return hex;
     }},
    {"DeepTree",
     [](uint64_t i, uint64_t) {
       std::string out;
       for (const char c : hexadecimal(i >> 4, 4)) out += {c, '/'};
       return out + "file-" + padded(i, 7);
     }},
    {"OneHugeFolder",
     [](uint64_t i, uint64_t count) {
       return i < count / 100 ? "folder-" + padded(i / 10, 7) + "/" + padded(i, 7)
                              : "huge/" + padded(i, 7);
     }},
    {"NinetyPercentUnderOnePrefix",
     [](uint64_t i, uint64_t count) {
       return (i < count / 20 ? "aa/" : i >= count - count / 20 ? "zz/" : "mm/") + padded(i, 7);
     }},
    {"DifferentAfterTwoHundredCharacters",
     [](uint64_t i, uint64_t) { return std::string(200, 'p') + padded(i, 7); }},
    {"NotAscii",
     [](uint64_t i, uint64_t) { return "данные/写真 é+%/" + padded(i, 7) + "-\U0001F600.jpg"; }},
    {"AllOfUnicodeInOrder",
     [](uint64_t i, uint64_t count) { return utf8(code_point(i * 1'112'000 / count)) + "x"; }},
    {"AllOfUnicodeAtRandom",
     [](uint64_t i, uint64_t) {
       std::string out;
       for (uint64_t k = 0; k < 3; ++k) out += utf8(code_point(mixed(3 * i + k)));
       return out;
     }},
    {"DifferentInTheLastByte",
     [](uint64_t i, uint64_t) { return hexadecimal(mixed(i / 2), 16) + (i % 2 ? "b" : "a"); }},
    {"NumbersTwice",
     [](uint64_t i, uint64_t) {
       const std::string id = padded(1'440'764 + (i / 1300) * 13'931, 8);
       return "train/n" + id + "/n" + id + "_" + std::to_string(mixed(i) % 20'000) + "_" +
              padded(i, 7) + ".JPEG";
     }},
};

Names names_of(const Shape& shape, uint64_t count) {
  Names names;
  for (uint64_t i = 0; i < count; ++i) names.insert(shape.name(i, count));
  return names;
}

class KeyRangesOf : public ::testing::TestWithParam<Shape> {};
INSTANTIATE_TEST_SUITE_P(Shapes, KeyRangesOf, ::testing::ValuesIn(kShapes),
                         [](const auto& info) { return std::string(info.param.title); });

// What the pages cost one after the other is 1000 rounds; sixteen to seventeen is what 64 at a time
// could do at best.
TEST_P(KeyRangesOf, AThousandPagesTakeFewRoundsAndFewMoreRequests) {
  const Names names = names_of(GetParam(), 100'000);
  Simulation simulation(names, /*page_names=*/100, /*slots=*/64);
  simulation.run();
  EXPECT_EQ(simulation.listed, sorted(names));
  const size_t pages = (names.size() + 99) / 100;
  EXPECT_LE(simulation.requests, pages * 13 / 10);
  EXPECT_LE(simulation.rounds, 40u);
  EXPECT_LE(simulation.most_under_way, 64u);
}

TEST_P(KeyRangesOf, PartsOfItAreListedToo) {
  const Names names = names_of(GetParam(), 5'000);
  const std::vector<std::string> all = sorted(names);
  Simulation simulation(names, 100, 16);
  simulation.start_offset = all[all.size() / 3];
  simulation.end_offset = all[all.size() * 3 / 4];
  simulation.run();
  EXPECT_TRUE(std::ranges::equal(
      simulation.listed,
      std::span(all).subspan(all.size() / 3, all.size() * 3 / 4 - all.size() / 3)));
}

TEST_P(KeyRangesOf, WithoutCuttingItIsPageAfterPage) {
  const Names names = names_of(GetParam(), 2'000);
  Simulation simulation(names, 100, 64);
  simulation.cutting = false;
  simulation.run();
  EXPECT_EQ(simulation.listed, sorted(names));
  EXPECT_EQ(simulation.requests, (names.size() + 99) / 100);
  EXPECT_EQ(simulation.most_under_way, 1u);
}

TEST_P(KeyRangesOf, WhatIsThereThroughoutIsListedOnceWhateverComesAndGoes) {
  const Names names = names_of(GetParam(), 5'000);
  std::vector<std::string> all = sorted(names);
  Names lasting, passing;
  for (size_t i = 0; i < all.size(); ++i) (i % 3 == 0 ? passing : lasting).insert(all[i]);
  Simulation simulation(lasting, 50, 32);
  all = sorted(passing);
  simulation.meanwhile = [&all](Names& bucket, std::mt19937& random) {
    for (int i = 0; i < 100; ++i) {
      const std::string& name = all[random() % all.size()];
      if (!bucket.erase(name)) bucket.insert(name);
    }
  };
  simulation.run();
  EXPECT_TRUE(std::ranges::is_sorted(simulation.listed, std::ranges::less_equal()));
  std::vector<std::string> found;
  for (const std::string& name : simulation.listed) {
    if (lasting.contains(name)) found.push_back(name);
    EXPECT_TRUE(lasting.contains(name) || passing.contains(name)) << name;
  }
  EXPECT_EQ(found, sorted(lasting));
}

TEST_P(KeyRangesOf, FewPagesCostFewGuesses) {
  // Sequential paging asks once for each page. One or two more are those that were under way when
  // a range turned out to be shorter than it was thought.
  for (const size_t pages : {2u, 5u, 10u, 20u, 50u}) {
    Simulation simulation(names_of(GetParam(), pages * 100), /*page_names=*/100, /*slots=*/64);
    simulation.run();
    EXPECT_LE(simulation.requests, pages + std::min(6 + pages, 24 + pages / 5) + 2) << pages;
  }
}

// ── Any names ────────────────────────────────────────────────────────────────────────────────

// Names of few characters, so that they are close to each other, or of all.
std::string any_name(std::mt19937& random) {
  static const std::vector<std::string> kPieces = {"a",    "b",  "z",          "0",         "1",
                                                   "9",    "/",  "-",          "é",         "\x01",
                                                   "\x7f", "中", "\U0010FFFF", "\U0001F600"};
  std::string out;
  const size_t length = 1 + random() % 6;
  const uint32_t kind = random() % 3;
  for (size_t i = 0; i < length; ++i) {
    out += kind == 0 ? utf8(code_point(random()))
                     : kPieces[random() % (kind == 1 ? 3 : kPieces.size())];
  }
  return out;
}

TEST(KeyRanges, AnySetOfNamesIsListedAsItIs) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    Names names;
    const size_t count = random() % 600;
    for (size_t i = 0; i < count; ++i) names.insert(any_name(random));
    Simulation simulation(names, /*page_names=*/1 + random() % 20, /*slots=*/2 + random() % 40,
                          seed);
    simulation.short_pages = random() % 2 == 0;
    simulation.cutting = random() % 8 != 0;
    if (random() % 2 == 0) simulation.prefix = any_name(random).substr(0, 1);
    if (!is_utf8(simulation.prefix)) simulation.prefix.clear();
    if (random() % 2 == 0) simulation.start_offset = any_name(random);
    if (random() % 2 == 0) simulation.end_offset = any_name(random);
    simulation.run();
    std::vector<std::string> expected;
    for (const std::string& name : names) {
      const bool inside = name >= simulation.start_offset &&
                          (simulation.end_offset.empty() || name < simulation.end_offset);
      if (inside && name.starts_with(simulation.prefix)) expected.push_back(name);
    }
    ASSERT_EQ(simulation.listed, expected) << "seed " << seed;
  }
}

TEST(KeyRanges, OnePageIsOneRequest) {
  for (const size_t count : {0u, 1u, 2u, 999u, 1000u}) {
    Names names;
    for (size_t i = 0; i < count; ++i) names.insert(padded(i, 4));
    Simulation simulation(names, 1000, 64);
    simulation.run();
    EXPECT_EQ(simulation.requests, 1u) << count;
    EXPECT_EQ(simulation.listed.size(), count);
  }
}

TEST(KeyRanges, TheFirstNamesComeFirst) {
  Names names;
  for (size_t i = 0; i < 100'000; ++i) names.insert(padded(i, 9));
  KeyRanges ranges("", "", "");
  EXPECT_EQ(ranges.plan(64).size(), 1u);
  std::vector<std::string> page;
  for (size_t i = 0; i < 100; ++i) page.push_back(padded(i, 9));
  const std::vector<std::string_view> views(page.begin(), page.end());
  ASSERT_TRUE(ranges.answered(1, views, "more").has_value());
  EXPECT_TRUE(ranges.first_is_idle());
  const std::vector<Request> requests = ranges.plan(64);
  ASSERT_GT(requests.size(), 4u);
  EXPECT_FALSE(ranges.first_is_idle());
  EXPECT_EQ(requests[0].range, 1u);
  EXPECT_EQ(requests[0].start_offset, page.back());
  for (size_t i = 1; i < requests.size(); ++i) {
    EXPECT_EQ(requests[i].follows, requests[i - 1].range);
    if (i > 1) EXPECT_EQ(requests[i].start_offset, requests[i - 1].end_offset);
  }
  EXPECT_EQ(requests.back().end_offset, "");
  // Page after page the reader would wait long for the second range.
  EXPECT_LT(requests[1].start_offset, padded(2'000, 9));
}

TEST(KeyRanges, GuessesAreBoundedByWhatHasCome) {
  // A name that could go on everywhere, and nothing does: two pages in all.
  std::vector<std::string> names;
  for (size_t i = 0; i < 101; ++i) names.push_back("0000/" + padded(i, 30));
  Simulation simulation(Names(names.begin(), names.end()), 100, 64);
  simulation.run();
  EXPECT_LE(simulation.requests, 2u + 8u);
}

// ── Servers that are wrong ───────────────────────────────────────────────────────────────────

class WrongPage : public ::testing::Test {
 protected:
  Result<KeyRanges::Kept> answer(std::vector<std::string_view> names, std::string_view token = "") {
    return ranges_.answered(1, names, token);
  }
  // The pages so far are good.
  void go_on(std::vector<std::string_view> names, std::string_view token) {
    ASSERT_TRUE(answer(std::move(names), token).has_value());
    next_ = ranges_.plan(1);
    ASSERT_EQ(next_.size(), 1u);
  }
  void expect_corrupt(const Result<KeyRanges::Kept>& result, std::string_view text) {
    ASSERT_FALSE(result.has_value());
    EXPECT_EQ(result.error().code(), Code::kCorrupt);
    EXPECT_THAT(result.error().message(), HasSubstr(text));
  }

  KeyRanges ranges_{"p/", "p/b", "p/y"};
  std::vector<Request> next_ = ranges_.plan(1);
};

TEST_F(WrongPage, NamesOutOfOrderAreCorrupt) {
  expect_corrupt(answer({"p/d", "p/c"}),
                 R"(the page of names from "p/b" to "p/y": the name "p/c" after "p/d")");
}
TEST_F(WrongPage, ANameTwiceIsCorrupt) { expect_corrupt(answer({"p/c", "p/c"}), "after"); }
TEST_F(WrongPage, NamesBeforeTheStartAreCorrupt) {
  expect_corrupt(answer({"p/a", "p/c"}), R"(the name "p/a" before its start)");
}
TEST_F(WrongPage, NamesBeyondTheEndAreCorrupt) {
  expect_corrupt(answer({"p/c", "p/y"}), R"(the name "p/y" beyond its end)");
}
TEST_F(WrongPage, NamesWithoutThePrefixAreCorrupt) {
  KeyRanges ranges("p/", "", "");
  ASSERT_EQ(ranges.plan(1).size(), 1u);
  const std::vector<std::string_view> names = {"p/c", "p0"};
  expect_corrupt(ranges.answered(1, names, ""), R"(the name "p0" without the prefix "p/")");
}
TEST_F(WrongPage, EmptyPagesThatNeverEndAreCorrupt) {
  std::string text;
  for (int i = 0; i < 30'000 && text.empty(); ++i) {
    if (i == 8000) {
      go_on({"p/c"}, "token");
      continue;
    }
    const Result<KeyRanges::Kept> kept = answer({}, cat("token ", i));
    if (kept) {
      ASSERT_EQ(ranges_.plan(1).size(), 1u);
    } else {
      text = kept.error().message();
      EXPECT_EQ(i, 18'001);
    }
  }
  EXPECT_THAT(text, HasSubstr("more than 10000 empty pages in a row"));
}
TEST_F(WrongPage, APageThatGoesBackIsCorrupt) {
  go_on({"p/c", "p/d", "p/e"}, "more");
  expect_corrupt(answer({"p/d", "p/e", "p/f"}), R"(the name "p/d" before its start)");
}
TEST_F(WrongPage, ControlCharactersAreEscapedInErrors) {
  expect_corrupt(answer({"p/c\x1b[2J", "p/b"}), R"(after "p/c\u001b[2J")");
}
TEST_F(WrongPage, EmptyPagesAreFollowed) {
  go_on({}, "again");
  EXPECT_EQ(next_[0].page_token, "again");
  go_on({}, "and again");  // a server may skip a long way
  EXPECT_EQ(next_[0].page_token, "and again");
}
TEST_F(WrongPage, TheLastNameComesOnceMoreAlsoAfterAnEmptyPage) {
  go_on({"p/c", "p/d"}, "more");
  go_on({}, "further");
  const Result<KeyRanges::Kept> next = answer({"p/d", "p/e"}, "yet further");
  ASSERT_TRUE(next.has_value());
  EXPECT_EQ(next->begin, 1u);
}
TEST_F(WrongPage, APageOfATokenThatGoesBackIsCorrupt) {
  go_on({"p/c", "p/d"}, "more");
  go_on({"p/d"}, "further");
  expect_corrupt(answer({"p/d", "p/e"}), R"(the name "p/d" again, after "p/d")");
}
TEST_F(WrongPage, EmptyPagesAreFollowedByTheirToken) {
  go_on({"p/c", "p/d"}, "more");
  EXPECT_EQ(next_[0].page_token, "");
  EXPECT_EQ(next_[0].start_offset, "p/d");
  go_on({}, "further");
  EXPECT_EQ(next_[0].page_token, "further");
  EXPECT_EQ(next_[0].start_offset, "p/d");
  const Result<KeyRanges::Kept> last = answer({"p/k"});
  ASSERT_TRUE(last.has_value());
  EXPECT_TRUE(last->complete);
  EXPECT_EQ(last->begin, 0u);
  EXPECT_TRUE(ranges_.complete());
  EXPECT_THAT(ranges_.plan(8), IsEmpty());
}

// ── Alphabets ────────────────────────────────────────────────────────────────────────────────

TEST(NameAlphabets, DigitsStandForAllDigitsAndHexadecimalForAllOfThem) {
  NameAlphabets alphabets;
  alphabets.see("a-07");
  alphabets.see("a-b3");
  EXPECT_TRUE(alphabets.of(0).fixed);
  EXPECT_TRUE(alphabets.of(1).fixed);
  EXPECT_EQ(alphabets.of(2).size, 16u);
  EXPECT_EQ(alphabets.of(3).size, 10u);
  EXPECT_EQ(alphabets.of(2).count_below('a'), 10u);
  EXPECT_EQ(alphabets.of(2).count_up_to('a'), 11u);
  EXPECT_EQ(alphabets.of(2).at(11), U'b');
  EXPECT_EQ(alphabets.of(4).size, 0u);
  alphabets.see("a-q0");
  EXPECT_EQ(alphabets.of(2).size, 36u);
}

TEST(NameAlphabets, WideCharactersStandForAllOfTheirLength) {
  NameAlphabets alphabets;
  alphabets.see("é");
  EXPECT_TRUE(alphabets.of(0).fixed);
  alphabets.see("日");
  EXPECT_FALSE(alphabets.of(0).fixed);
  EXPECT_EQ(alphabets.of(0).size, 0x10000u - 0x80u - 0x800u);
  EXPECT_EQ(alphabets.of(0).at(0xD800 - 0x80), char32_t{0xE000});
}

}  // namespace
}  // namespace headrace
