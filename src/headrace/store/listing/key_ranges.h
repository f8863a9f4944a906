// Cuts a listing into ranges of names that can be listed in parallel.
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

// Which characters occur at each place of the names seen so far, and which to expect there: where a
// digit was seen, all ten; where letters differ, all of their kind. Places are counted in code
// points from the start of the name.
// Thread: confined.
class NameAlphabets {
 public:
  struct Span {  // code points [first, last]
    char32_t first, last;
  };
  // The characters that may occur at one place of a name, in ascending order. Where only one was
  // seen, and no digit, the place is fixed.
  struct Alphabet {
    std::vector<Span> spans;
    uint32_t size = 0;  // characters in all spans
    bool fixed = true;

    uint32_t count_below(char32_t c) const;
    uint32_t count_up_to(char32_t c) const;  // below, and c itself
    char32_t at(uint32_t index) const;       // index < size
  };

  void see(std::string_view name);
  // Takes two neighbouring names. A place where no pair differs first, although pairs differ at an
  // earlier place, only repeats what comes before it and says nothing new. After enough pairs it
  // counts as one that was never seen.
  void see_pair(std::string_view low, std::string_view high);
  // Places that were never seen are fixed and empty.
  const Alphabet& of(size_t index) const;
  size_t size() const { return seen_.size(); }

 private:
  struct Seen {
    std::bitset<128> ascii;
    char32_t first_wide = 0;    // the first character beyond ASCII
    bool wide_differs = false;  // there were others
    bool of_2_bytes = false, of_3_bytes = false, of_4_bytes = false;
    bool operator==(const Seen&) const = default;
  };
  static Alphabet expected(const Seen& seen);

  std::vector<uint32_t> decides_;  // by place: how many pairs differ there first
  uint32_t pair_count_ = 0;
  size_t shallowest_ = SIZE_MAX;
  std::vector<Seen> seen_;
  std::vector<Alphabet> alphabets_;  // of seen_
};

// Cuts the names of one listing into ranges, each of which is listed page by page. Whenever more
// requests may be in flight, cuts again where most names seem to be left. No I/O, no clock: the
// owner sends what plan() returns and passes the answers to answered(), in any order.
//
// Nobody knows beforehand where the names are. After the first page the rest is cut by guesses:
// names that could come next, varying the digits and letters of the last name at every level. A
// wrong guess costs one request, and a range that turns out to be empty shows where no names are.
// The number of pages received bounds how many requests may be spent on guesses (allowance()).
//
// Ranges are half-open and together cover everything, so that every name belongs to exactly one
// range, whatever is added or removed meanwhile. A range continues from its last name, inclusive,
// because a page token is only valid with the bounds it was issued for, and those change. The sizes
// are guesses; they do not affect whether a name is lost or listed twice.
// Thread: confined.
class KeyRanges {
 public:
  // Names that begin with `prefix`, from `start_offset` up to but excluding `end_offset` ("": no
  // bound). All are UTF-8. Without `cutting` there is only one range, whose pages are requested by
  // token.
  KeyRanges(std::string prefix, const std::string& start_offset, std::string end_offset,
            bool cutting = true);
  ~KeyRanges();

  // One page to ask for.
  struct Request {
    uint64_t range = 0;             // ranges are numbered from 1
    uint64_t follows = 0;           // for a new range, the one just before it; else 0
    std::string start_offset = {};  // names >= this; "": from the first
    std::string end_offset = {};    // names < this; "": to the last
    std::string page_token = {};    // without cutting, and after a page without new names
  };
  // The requests that may be sent now, at most `slots`: first those that continue a range, in the
  // order of names. A range has at most one request in flight.
  std::vector<Request> plan(size_t slots);

  // What an answer contributed.
  struct Kept {
    size_t begin = 0, end = 0;  // of the names given: those that belong to the range and are new
    bool complete = false;      // the range is; there are no more pages of it
  };
  // Takes the answer to the request of `range`: the page's names, and its token ("": no more).
  // Errors: kCorrupt for names that are out of order, outside the requested bounds, or lack the
  // prefix, and for a page that only repeats the token it was requested with.
  Result<Kept> answered(uint64_t range, std::span<const std::string_view> names,
                        std::string_view page_token);

  bool complete() const { return ranges_.empty(); }
  // The first incomplete range has no request in flight.
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
  size_t page_names_ = 1;  // of a full page, as far as is known
  double names_kept_ = 0, answers_ = 0;
};

}  // namespace headrace
