#include "headrace/store/listing/key_ranges.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "headrace/format/json_quote.h"
#include "headrace/format/utf8.h"

namespace headrace {
namespace {

constexpr char32_t kLastCodePoint = 0x10FFFF;
constexpr size_t kSampledNames = 16;   // of a page, for the alphabets
constexpr uint32_t kEnoughPairs = 64;  // to tell at which places names differ first
constexpr double kDeepPages = 32;      // see Gap
// Pages without names in a row: far more than what was deleted or is hidden can leave.
constexpr uint32_t kMostEmptyPages = 10'000;
// See allowance().
constexpr double kGuessesAtFirst = 6, kGuessesPerPageAtFirst = 1;
constexpr double kGuesses = 24, kGuessesPerPage = 0.2;

size_t common_length(std::u32string_view a, std::u32string_view b) {
  const size_t shorter = std::min(a.size(), b.size());
  size_t at = 0;
  while (at < shorter && a[at] == b[at]) ++at;
  return at;
}

// The character after `c`; none after the last.
std::optional<char32_t> following(char32_t c) {
  if (c >= kLastCodePoint) return std::nullopt;
  return c == 0xD7FF ? 0xE000 : c + 1;
}

}  // namespace

// ── What characters there are ────────────────────────────────────────────────────────────────

uint32_t NameAlphabets::Alphabet::count_below(char32_t c) const {
  uint32_t count = 0;
  for (const Span& span : spans) {
    if (c <= span.first) break;
    count += std::min<char32_t>(c - 1, span.last) - span.first + 1;
  }
  return count;
}

uint32_t NameAlphabets::Alphabet::count_up_to(char32_t c) const {
  const std::optional<char32_t> next = following(c);
  return next ? count_below(*next) : size;
}

char32_t NameAlphabets::Alphabet::at(uint32_t index) const {
  for (const Span& span : spans) {
    const uint32_t length = span.last - span.first + 1;
    if (index < length) return span.first + index;
    index -= length;
  }
  return spans.back().last;
}

void NameAlphabets::see(std::string_view name) {
  const std::u32string text = decode_utf8(name);
  if (text.size() > seen_.size()) {
    seen_.resize(text.size());
    alphabets_.resize(text.size());
  }
  for (size_t i = 0; i < text.size(); ++i) {
    const char32_t c = text[i];
    Seen& seen = seen_[i];
    const Seen before = seen;
    if (c < 0x80) {
      seen.ascii.set(c);
    } else {
      if (seen.first_wide == 0) seen.first_wide = c;
      seen.wide_differs = seen.wide_differs || c != seen.first_wide;
      (c < 0x800 ? seen.of_2_bytes : c < 0x10000 ? seen.of_3_bytes : seen.of_4_bytes) = true;
    }
    if (seen != before) alphabets_[i] = expected(seen);
  }
}

void NameAlphabets::see_pair(std::string_view low, std::string_view high) {
  const size_t place = common_length(decode_utf8(low), decode_utf8(high));
  if (place >= decides_.size()) decides_.resize(place + 1);
  ++decides_[place];
  ++pair_count_;
  shallowest_ = std::min(shallowest_, place);
}

const NameAlphabets::Alphabet& NameAlphabets::of(size_t index) const {
  static const Alphabet unseen;
  if (index >= alphabets_.size()) return unseen;
  if (pair_count_ >= kEnoughPairs && index > shallowest_ &&
      (index >= decides_.size() || decides_[index] == 0))
    return unseen;
  return alphabets_[index];
}

NameAlphabets::Alphabet NameAlphabets::expected(const Seen& seen) {
  const auto any = [&seen](char32_t first, char32_t last) {
    for (char32_t c = first; c <= last; ++c) {
      if (seen.ascii.test(c)) return true;
    }
    return false;
  };
  std::bitset<128> ascii = seen.ascii;
  const auto fill = [&ascii](char32_t first, char32_t last) {
    for (char32_t c = first; c <= last; ++c) ascii.set(c);
  };
  Alphabet alphabet;
  const bool digits = any('0', '9');
  alphabet.fixed = !digits && seen.ascii.count() + (seen.first_wide != 0) < 2 && !seen.wide_differs;
  if (!alphabet.fixed) {
    if (digits) fill('0', '9');
    // Hexadecimal, unless another letter is seen.
    for (const char32_t a : {U'A', U'a'}) {
      if (any(a, a + 25)) fill(a, digits && !any(a + 6, a + 25) ? a + 5 : a + 25);
    }
  }
  const auto add = [&alphabet](char32_t first, char32_t last) {
    if (!alphabet.spans.empty() && alphabet.spans.back().last + 1 == first) {
      alphabet.spans.back().last = last;
    } else {
      alphabet.spans.push_back({first, last});
    }
    alphabet.size += last - first + 1;
  };
  for (char32_t c = 0; c < 0x80; ++c) {
    if (ascii.test(c)) add(c, c);
  }
  if (alphabet.fixed && seen.first_wide != 0) {
    add(seen.first_wide, seen.first_wide);
  } else if (seen.first_wide != 0) {
    if (seen.of_2_bytes) add(0x80, 0x7FF);
    if (seen.of_3_bytes) {
      add(0x800, 0xD7FF);
      add(0xE000, 0xFFFF);
    }
    if (seen.of_4_bytes) add(0x10000, kLastCodePoint);
  }
  return alphabet;
}

// ── Ranges ───────────────────────────────────────────────────────────────────────────────────

struct KeyRanges::Range {
  uint64_t number = 0;
  std::string begin = {}, end = {};   // [begin, end); "" for no bound
  std::string first = {}, last = {};  // of the names that have come; "" if none has
  double names = 0;                   // how many have
  std::string token = {};             // where the next page starts, if `last` does not tell it
  std::string asked_from = {}, asked_end = {};  // of the request under way
  bool in_flight = false, answered = false;
  bool last_again = false;   // the page under way may begin with `last`
  uint32_t empty_pages = 0;  // in a row
  double left_pages = 0;     // that may still come: a guess, damped (see Gap)
  // How dense the names are: between the first and the last, and between the start of the range and
  // the last, which says more about names far away.
  struct Density {
    size_t place = 0;          // where the two differ
    double per_step_log2 = 0;  // names per step of the character there, as a power of two
  };
  Density near = {}, far = {};
};

// What may be between the last name of a range and its end, as groups in the order of names. The
// names of a group share a beginning, and continue with one of several characters. The number of
// pages in a group is extrapolated from the density of the last page. Beyond what is already known
// that is only a guess, so pages in excess of `scale` count only by their logarithm, and groups of
// all sizes get a share of the cuts. Nearby names may be much denser than those far away (one full
// folder among many small ones), or say nothing about them (the only full folder); so groups known
// only from nearby names together get as much as all others.
struct KeyRanges::Gap {
  struct Group {
    bool of_end = false;            // begins as the end of the range does, not as the last name
    size_t place = 0;               // where the names go on
    uint32_t first = 0, count = 0;  // characters of the place's alphabet
    char32_t beyond = 0;            // count = 0: anything from this character on
    double pages = 0;               // damped
  };
  std::u32string last, end;
  std::vector<Group> groups;
  double pages = 0;

  Gap(const Range& range, const NameAlphabets& alphabets, size_t prefix_length, double page_names,
      double scale);
  // The name that `pages` damped pages precede.
  std::string name_at(double pages, const NameAlphabets& alphabets) const;
};

KeyRanges::Gap::Gap(const Range& range, const NameAlphabets& alphabets, size_t prefix_length,
                    double page_names, double scale)
    : last(decode_utf8(range.last)), end(decode_utf8(range.end)) {
  const size_t shared =
      end.empty() ? std::min(prefix_length, last.size()) : common_length(last, end);
  const double scale_log2 = std::log2(scale);
  const auto add = [&](Group group, double log2_pages) {
    group.pages =
        log2_pages <= scale_log2 ? std::exp2(log2_pages) : scale * (1 + log2_pages - scale_log2);
    pages += group.pages;
    groups.push_back(group);
  };
  // Names per step at a place: the density found at another place, multiplied or divided by the
  // number of characters at the places in between.
  const size_t place_count = std::max({last.size(), end.size(), range.near.place}) + 1;
  const double page_log2 = std::log2(page_names);
  const auto log2_size = [&](size_t place) {
    return std::log2(std::max(1u, alphabets.of(place).size));
  };
  std::vector<double> per_step(place_count);
  per_step[range.near.place] = range.near.per_step_log2 - page_log2;
  for (size_t i = range.near.place; i-- > 0;) per_step[i] = per_step[i + 1] + log2_size(i + 1);
  for (size_t i = range.near.place + 1; i < place_count; ++i) {
    per_step[i] = per_step[i - 1] - log2_size(i);
  }
  per_step[range.far.place] = range.far.per_step_log2 - page_log2;
  for (size_t i = range.far.place; i-- > 0;) per_step[i] = per_step[i + 1] + log2_size(i + 1);
  size_t top = prefix_length;  // the first place where names differ
  while (top + 1 < last.size() && alphabets.of(top).fixed) ++top;
  // Names that begin like the last one and are greater; deepest place first.
  for (size_t i = std::min(last.size(), range.near.place + 3); i-- > shared;) {
    const NameAlphabets::Alphabet& alphabet = alphabets.of(i);
    if (alphabet.fixed && !(i == shared && !end.empty())) continue;
    const uint32_t first = alphabet.count_up_to(last[i]);
    uint32_t past = alphabet.size;
    if (i == shared && shared < end.size()) past = alphabet.count_below(end[shared]);
    if (past > first) {
      add({.place = i, .first = first, .count = past - first},
          std::log2(past - first) + per_step[i]);
    }
    // Then characters that no name so far has at that place; this group also stands for every
    // shallower fixed place.
    if (i == top && alphabet.size > 0) {
      const std::optional<char32_t> beyond =
          following(std::max(alphabet.spans.back().last, last[i]));
      const bool bounded = i == shared && shared < end.size();
      if (beyond && (!bounded || *beyond < end[shared])) {
        add({.place = i, .beyond = *beyond}, std::log2(scale) - 1);
      }
    }
  }
  // Names that begin like the end and are smaller.
  for (size_t i = shared + (shared < last.size() ? 1 : 0); i < end.size(); ++i) {
    const uint32_t count = alphabets.of(i).count_below(end[i]);
    if (count == 0) continue;
    add({.of_end = true, .place = i, .count = count}, std::log2(count) + per_step[i]);
  }
  // At places deeper than `far` reaches, only nearby names count.
  double deep = 0, shallow = 0;
  for (const Group& group : groups) (group.place > range.far.place ? deep : shallow) += group.pages;
  const double most = std::max(shallow, kDeepPages);
  if (deep > most) {
    for (Group& group : groups) {
      if (group.place > range.far.place) group.pages *= most / deep;
    }
    pages = shallow + most;
  }
}

std::string KeyRanges::Gap::name_at(double wanted, const NameAlphabets& alphabets) const {
  constexpr double kFineEnough = 1.0 / 256;  // of a step at the group's place
  for (const Group& group : groups) {
    if (wanted > group.pages) {
      wanted -= group.pages;
      continue;
    }
    std::u32string name = (group.of_end ? end : last).substr(0, group.place);
    if (group.count == 0) return encode_utf8(name += group.beyond);
    double step = wanted / group.pages * group.count;
    const auto whole = std::min(static_cast<uint32_t>(step), group.count - 1);
    name += alphabets.of(group.place).at(group.first + whole);
    step -= whole;
    // Finer: the characters that follow, as digits of a number.
    std::u32string fixed;
    double unit = 1.0 / group.count;
    for (size_t i = group.place + 1; i < alphabets.size() && unit > kFineEnough; ++i) {
      const NameAlphabets::Alphabet& alphabet = alphabets.of(i);
      if (alphabet.size == 0) break;  // nothing is known
      if (alphabet.fixed) {
        fixed += alphabet.spans.front().first;
        continue;
      }
      step *= alphabet.size;
      const auto digit = std::min(static_cast<uint32_t>(step), alphabet.size - 1);
      step -= digit;
      unit /= alphabet.size;
      name += std::exchange(fixed, {});
      name += alphabet.at(digit);
    }
    return encode_utf8(name);
  }
  return {};
}

KeyRanges::KeyRanges(std::string prefix, const std::string& start_offset, std::string end_offset,
                     bool cutting)
    : cutting_(cutting), prefix_(std::move(prefix)), prefix_length_(decode_utf8(prefix_).size()) {
  ranges_.push_back({.number = ++last_number_,
                     .begin = start_offset > prefix_ ? start_offset : std::string(),
                     .end = std::move(end_offset)});
  by_number_[last_number_] = ranges_.begin();
}

KeyRanges::~KeyRanges() = default;

bool KeyRanges::first_is_idle() const { return !ranges_.empty() && !ranges_.front().in_flight; }

KeyRanges::Request KeyRanges::request_for(Range& range) {
  range.in_flight = true;
  if (range.token.empty()) {  // a token is good with the bounds that it was given for
    range.asked_from = range.last.empty() ? range.begin : range.last;
    range.asked_end = range.end;
    range.last_again = true;
  }
  return {.range = range.number,
          .start_offset = range.asked_from,
          .end_offset = range.asked_end,
          .page_token = range.token};
}

// How many requests may have been spent beyond what sequential paging needs.
double KeyRanges::allowance() const {
  const double pages = names_kept_ / static_cast<double>(page_names_);
  return std::min(kGuessesAtFirst + kGuessesPerPageAtFirst * pages,
                  kGuesses + kGuessesPerPage * pages);
}

// How many have been spent, or may turn out to have been.
double KeyRanges::guessed() const {
  double guessed = answers_ - names_kept_ / static_cast<double>(page_names_);
  for (const Range& range : ranges_) guessed += range.answered ? 0.5 : 1.0;
  return guessed;
}

double KeyRanges::known_scale() const {
  return std::clamp(0.25 * names_kept_ / static_cast<double>(page_names_), 2.0, 64.0);
}

std::vector<KeyRanges::Request> KeyRanges::plan(size_t slots) {
  std::vector<Request> requests;
  for (Range& range : ranges_) {
    if (requests.size() == slots) return requests;
    if (!range.in_flight) requests.push_back(request_for(range));
  }
  if (cutting_ && requests.size() < slots)
    cut_where_most_is_left(slots - requests.size(), requests);
  return requests;
}

void KeyRanges::cut_where_most_is_left(size_t slots, std::vector<Request>& requests) {
  constexpr double kLeastPages = 3;   // that a range must have left to be cut
  constexpr double kFirstCounts = 4;  // the reader of the listing waits for the first range
  const double spare = allowance() - guessed();
  if (spare < 1 || ranges_.empty()) return;
  slots = std::min(slots, static_cast<size_t>(spare));
  struct Share {
    RangeList::iterator range;
    size_t cuts = 0;
    double weight = 0;
    double each() const { return weight / static_cast<double>(cuts + 1); }
  };
  std::vector<Share> shares;
  for (auto range = ranges_.begin(); range != ranges_.end(); ++range) {
    const double factor = range == ranges_.begin() ? kFirstCounts : 1;
    shares.push_back({.range = range, .weight = range->left_pages * factor});
  }
  for (; slots > 0; --slots) {
    const auto most = std::ranges::max_element(shares, {}, &Share::each);
    if (most->each() < kLeastPages) break;
    ++most->cuts;
  }
  for (const Share& share : shares) {
    if (share.cuts > 0) cut(share.range, share.cuts, requests);
  }
}

void KeyRanges::cut(RangeList::iterator at, size_t cuts, std::vector<Request>& requests) {
  const Gap gap(*at, alphabets_, prefix_length_, static_cast<double>(page_names_), known_scale());
  // The page in flight is not cut.
  double from = std::min(1.0, gap.pages);
  double width = (gap.pages - from) / static_cast<double>(cuts + 1);
  // Names that are wanted first should not have to wait for many pages read one by one.
  constexpr double kNearPages = 3;
  if (at == ranges_.begin() && width > kNearPages) {
    from += kNearPages;
    width = (gap.pages - from) / static_cast<double>(cuts);
    from -= width;
  }
  const std::string end = at->end;
  std::vector<std::string> names;
  for (size_t i = 1; i <= cuts; ++i) {
    std::string name = gap.name_at(from + width * static_cast<double>(i), alphabets_);
    const std::string& before = names.empty() ? at->last : names.back();
    if (name > before && (end.empty() || name < end)) names.push_back(std::move(name));
  }
  if (names.empty()) {
    at->left_pages = 0;  // no place was found to cut at
    return;
  }
  at->left_pages = from + width;
  at->end = names.front();
  for (size_t i = 0; i < names.size(); ++i) {
    const uint64_t follows = at->number;
    at = ranges_.insert(std::next(at), {.number = ++last_number_,
                                        .begin = names[i],
                                        .end = i + 1 < names.size() ? names[i + 1] : end});
    by_number_[last_number_] = at;
    requests.push_back(request_for(*at));
    requests.back().follows = follows;
  }
}

void KeyRanges::estimate(Range& range) const {
  const std::u32string last = decode_utf8(range.last);
  const auto density_since = [&](const std::string& since) {
    const std::u32string low = decode_utf8(since);
    const size_t level = common_length(low, last);
    // The distance between the two, in steps of the character at which they differ.
    double steps = 0, unit = 1;
    for (size_t i = level; i < std::max(low.size(), last.size()) && unit > 1e-9; ++i) {
      const NameAlphabets::Alphabet& alphabet = alphabets_.of(i);
      if (i > level) unit /= std::max(1u, alphabet.size);
      const auto index = [&](const std::u32string& name) {
        return i < name.size() ? static_cast<double>(alphabet.count_below(name[i])) : 0;
      };
      steps += unit * (index(last) - index(low));
    }
    return Range::Density{level, std::log2(range.names / std::max(steps, 1e-9))};
  };
  range.near = density_since(range.first);
  // What begins the listing is no measure.
  range.far = range.number == 1 ? range.near : density_since(range.begin);
  const Gap gap(range, alphabets_, prefix_length_, static_cast<double>(page_names_), known_scale());
  range.left_pages = gap.pages;
}

Result<KeyRanges::Kept> KeyRanges::answered(uint64_t number,
                                            std::span<const std::string_view> names,
                                            std::string_view page_token) {
  const RangeList::iterator at = by_number_.at(number);
  Range& range = *at;
  const auto bad = [&](const auto&... what) {
    return corrupt("the page of names from ", json_quote(range.asked_from), " to ",
                   range.asked_end.empty() ? "the end" : json_quote(range.asked_end), ": ",
                   what...);
  };
  for (size_t i = 1; i < names.size(); ++i) {
    if (names[i] <= names[i - 1]) {
      return bad("the name ", json_quote(names[i]), " after ", json_quote(names[i - 1]));
    }
  }
  if (!names.empty()) {
    const std::string_view low = names.front(), high = names.back();
    if (low < range.asked_from) return bad("the name ", json_quote(low), " before its start");
    if (!range.asked_end.empty() && high >= range.asked_end) {
      return bad("the name ", json_quote(high), " beyond its end");
    }
    for (const std::string_view name : {low, high}) {
      if (!name.starts_with(prefix_)) {
        return bad("the name ", json_quote(name), " without the prefix ", json_quote(prefix_));
      }
    }
  }
  Kept kept{.begin = 0, .end = names.size()};
  if (!names.empty() && names.front() == range.last) kept.begin = 1;
  if (!range.end.empty()) {  // it may have been cut meanwhile
    kept.end = static_cast<size_t>(std::ranges::lower_bound(names, range.end) - names.begin());
    kept.end = std::max(kept.end, kept.begin);
  }
  const bool more = !page_token.empty();
  // Without a token the names begin with the last one again, though the first page may be an empty
  // one; those of further pages come after it.
  if (!names.empty() && !std::exchange(range.last_again, false) && names.front() <= range.last) {
    return bad("the name ", json_quote(names.front()), " again, after ", json_quote(range.last));
  }
  const bool passed_end = kept.end < names.size();
  if (more) page_names_ = std::max(page_names_, names.size());
  answers_ += 1;
  names_kept_ += static_cast<double>(kept.end - kept.begin);
  range.in_flight = false;
  range.answered = true;
  range.token.clear();
  if (!more || passed_end) {
    kept.complete = true;
    by_number_.erase(number);
    ranges_.erase(at);
    return kept;
  }
  range.empty_pages = names.empty() ? range.empty_pages + 1 : 0;
  if (range.empty_pages > kMostEmptyPages) {
    return bad("more than ", kMostEmptyPages, " empty pages in a row, each of which names another");
  }
  if (kept.begin == names.size() || !cutting_) range.token = page_token;
  if (kept.begin == names.size()) return kept;
  range.last = names.back();
  if (!cutting_) return kept;
  const size_t stride = std::max<size_t>(1, names.size() / kSampledNames);
  for (size_t i = 0; i < names.size(); i += stride) alphabets_.see(names[i]);
  for (size_t i = stride; i < names.size(); i += stride) {
    alphabets_.see_pair(names[i - stride], names[i]);
  }
  if (range.first.empty() && at != ranges_.begin() && !std::prev(at)->last.empty()) {
    alphabets_.see_pair(std::prev(at)->last, names.front());
  }
  alphabets_.see(names.back());
  if (range.first.empty()) range.first = names.front();
  range.names += static_cast<double>(kept.end - kept.begin);
  estimate(range);
  return kept;
}

}  // namespace headrace
