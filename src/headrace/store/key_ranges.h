// How one listing is cut into ranges of names that are listed at the same time.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "headrace/base/result.h"

namespace headrace {

// Which characters stand at which place of the names seen so far, and which may be expected there:
// where a digit was seen, all ten; where letters differ, all of their kind. A place is counted in
// code points from the start of the name.
// Thread: confined.
class NameAlphabets {
 public:
  struct Span {  // code points [first, last]
    char32_t first, last;
  };
  // What may stand at one place, in ascending order. A place where one character was seen only, and
  // no digit, is fixed.
  struct Place {
    std::vector<Span> spans;
    uint32_t size = 0;  // characters in all spans
    bool fixed = true;

    uint32_t count_below(char32_t c) const;
    uint32_t count_up_to(char32_t c) const;  // below, and c itself
    char32_t at(uint32_t index) const;       // index < size
  };

  void see(std::string_view name);
  // Two names that lie near each other. A place at which no two differ first, though they do at a
  // place before it, repeats what stands before, and tells nothing of its own: after enough pairs
  // it counts as one that was never seen.
  void see_pair(std::string_view low, std::string_view high);
  // Places that were not seen are fixed and empty.
  const Place& place(size_t index) const;
  size_t place_count() const { return seen_.size(); }

 private:
  struct Seen {
    std::bitset<128> ascii;
    char32_t first_wide = 0;    // the first character beyond ASCII
    bool wide_differs = false;  // there was another one
    bool of_2_bytes = false, of_3_bytes = false, of_4_bytes = false;
    bool operator==(const Seen&) const = default;
  };
  static Place expected(const Seen& seen);

  std::vector<uint32_t> decides_;  // by place: how many pairs differ there first
  uint32_t pair_count_ = 0;
  size_t shallowest_ = SIZE_MAX;
  std::vector<Seen> seen_;
  std::vector<Place> places_;  // of seen_
};

// Cuts the names that one listing asks for into ranges, each of which is listed page by page, and
// cuts again where most seems to be left whenever more requests may be under way. No I/O, no clock:
// the owner sends what plan() gives and brings the answers to answered(), in any order.
//
// Where the names are is not known beforehand. After the first page the rest is cut at guesses:
// places where the names could go on, at every level of the digits and letters of the last name. A
// guess costs one request at worst, and a range that turns out to be empty has told where nothing
// is. How many requests may be spent so is bounded by how many pages have come (allowance()).
//
// Ranges are half-open and together cover everything, so that each name belongs to one range,
// whatever is added or removed meanwhile. A range goes on from its last name, inclusive, because
// a page token is only good with the bounds that it was given for, and those change. The sizes that
// it reckons with are guesses; that no name is lost or listed twice does not depend on them.
// Thread: confined.
class KeyRanges {
 public:
  // Names that begin with `prefix`, from `start_offset` on, below `end_offset` ("": no bound). All
  // are UTF-8. Without `cutting` it stays one range, whose pages are asked for by token.
  KeyRanges(std::string prefix, const std::string& start_offset, std::string end_offset,
            bool cutting = true);
  ~KeyRanges();

  // One page to ask for.
  struct Request {
    uint64_t range = 0;             // which range; they are numbered from 1
    uint64_t follows = 0;           // of a new range: the one whose names come right before; else 0
    std::string start_offset = {};  // names >= this; "": from the first
    std::string end_offset = {};    // names < this; "": to the last
    std::string page_token = {};    // without cutting, and after a page without new names
  };
  // What may be sent now: `slots` requests at the most, those that continue a range first, in the
  // order of names. A range has one request under way at a time.
  std::vector<Request> plan(size_t slots);

  // What an answer brought.
  struct Kept {
    size_t begin = 0, end = 0;  // of the names given: those that belong to the range and are new
    bool complete = false;      // the range is; there are no more pages of it
  };
  // The answer to the request of `range`: the page's names, and its token ("": no more).
  // Errors: kCorrupt for names that are out of order, outside of the bounds asked for, or without
  // the prefix, and for a page that brings nothing but the token that was sent.
  Result<Kept> answered(uint64_t range, std::span<const std::string_view> names,
                        std::string_view page_token);

  bool complete() const { return ranges_.empty(); }
  // The first range that is not complete has no request under way.
  bool first_is_idle() const;

 private:
  struct Range;
  struct Gap;
  using RangeList = std::list<Range>;

  double allowance() const;
  double guessed() const;
  double known_scale() const;
  void estimate(Range& range) const;
  void cut_where_most_is_left(size_t slots, std::vector<Request>& requests);
  void cut(RangeList::iterator at, size_t cuts, std::vector<Request>& requests);
  static Request request_for(Range& range);

  const bool cutting_;
  const std::string prefix_;
  const size_t prefix_length_;  // in code points
  RangeList ranges_;            // those not complete, in the order of names
  std::unordered_map<uint64_t, RangeList::iterator> by_number_;
  uint64_t last_number_ = 0;
  NameAlphabets alphabets_;
  size_t page_names_ = 1;  // of a full page, as far as seen
  double names_kept_ = 0, answers_ = 0;
};

}  // namespace headrace
