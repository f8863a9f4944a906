#include "headrace/format/http_date.h"

#include <array>
#include <cstdint>

#include "headrace/base/ascii.h"

namespace headrace {
namespace {

using std::chrono::system_clock;
using Seconds = std::chrono::sys_seconds;

// What system_clock can hold in nanoseconds, in whole years.
constexpr Seconds kBegin{std::chrono::sys_days(std::chrono::year(1678) / 1 / 1)};
constexpr Seconds kEnd{std::chrono::sys_days(std::chrono::year(2262) / 1 / 1)};

constexpr std::array<std::string_view, 12> kMonths = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                      "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};

// Takes text off the front, piece by piece; once something is missing, everything fails.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : rest_(text) {}

  bool ok() const { return ok_; }
  bool at_end() const { return ok_ && rest_.empty(); }
  char peek() const { return rest_.empty() ? '\0' : rest_.front(); }

  void literal(std::string_view text) {
    if (!rest_.starts_with(text)) return fail();
    rest_.remove_prefix(text.size());
  }
  int digits(size_t count) {
    if (rest_.size() < count) return fail(), 0;
    int value = 0;
    for (size_t i = 0; i < count; ++i) {
      if (rest_[i] < '0' || rest_[i] > '9') return fail(), 0;
      value = 10 * value + (rest_[i] - '0');
    }
    rest_.remove_prefix(count);
    return value;
  }
  int month() {
    for (size_t i = 0; i < kMonths.size(); ++i) {
      if (rest_.starts_with(kMonths[i])) {
        rest_.remove_prefix(3);
        return static_cast<int>(i + 1);
      }
    }
    return fail(), 0;
  }
  void letters() {  // one or more
    size_t count = 0;
    while (count < rest_.size() && ((rest_[count] >= 'A' && rest_[count] <= 'Z') ||
                                    (rest_[count] >= 'a' && rest_[count] <= 'z'))) {
      ++count;
    }
    if (count == 0) return fail();
    rest_.remove_prefix(count);
  }
  void fail() { ok_ = false; }

 private:
  std::string_view rest_;
  bool ok_ = true;
};

struct Clock {
  int hour = 0, minute = 0, second = 0;
};

Clock take_clock(Scanner& scanner) {
  Clock clock;
  clock.hour = scanner.digits(2);
  scanner.literal(":");
  clock.minute = scanner.digits(2);
  scanner.literal(":");
  clock.second = scanner.digits(2);
  return clock;
}

std::optional<Seconds> to_time(int year, int month, int day, Clock clock) {
  const std::chrono::year_month_day date{std::chrono::year(year),
                                         std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(day))};
  // A second 60 is a leap second; the clock counts it as the first of the next minute.
  if (!date.ok() || clock.hour > 23 || clock.minute > 59 || clock.second > 60) return std::nullopt;
  return Seconds(std::chrono::sys_days(date)) + std::chrono::hours(clock.hour) +
         std::chrono::minutes(clock.minute) + std::chrono::seconds(clock.second);
}

// RFC 9110 section 5.6.7. The weekday says nothing that the date does not, and is not checked.
std::optional<Seconds> seconds_of_http_date(std::string_view text, int this_year) {
  Scanner scanner(text);
  int year = 0, month = 0, day = 0;
  Clock clock;
  scanner.letters();
  if (scanner.peek() == ' ') {  // "Sun Nov  6 08:49:37 1994"
    scanner.literal(" ");
    month = scanner.month();
    scanner.literal(" ");
    if (scanner.peek() == ' ') {
      scanner.literal(" ");
      day = scanner.digits(1);
    } else {
      day = scanner.digits(2);
    }
    scanner.literal(" ");
    clock = take_clock(scanner);
    scanner.literal(" ");
    year = scanner.digits(4);
  } else {  // "Sun, 06 Nov 1994 08:49:37 GMT" or "Sunday, 06-Nov-94 08:49:37 GMT"
    scanner.literal(", ");
    day = scanner.digits(2);
    const bool is_old = scanner.peek() == '-';
    scanner.literal(is_old ? "-" : " ");
    month = scanner.month();
    scanner.literal(is_old ? "-" : " ");
    if (is_old) {
      // Two digits mean the year in this century, or the last one if that is 50 years ahead.
      year = this_year / 100 * 100 + scanner.digits(2);
      if (year > this_year + 50) year -= 100;
    } else {
      year = scanner.digits(4);
    }
    scanner.literal(" ");
    clock = take_clock(scanner);
    scanner.literal(" GMT");
  }
  if (!scanner.at_end()) return std::nullopt;
  return to_time(year, month, day, clock);
}

}  // namespace

std::optional<system_clock::time_point> parse_http_date(std::string_view text) {
  // The form with two digits of a year is older than every service.
  constexpr int kThisYear = 2000;
  const std::optional<Seconds> seconds = seconds_of_http_date(text, kThisYear);
  if (!seconds || *seconds < kBegin || *seconds >= kEnd) return std::nullopt;
  return *seconds;
}

std::optional<std::chrono::milliseconds> parse_retry_after(std::string_view value,
                                                           system_clock::time_point now) {
  constexpr std::chrono::milliseconds kLongest = std::chrono::hours(1);
  value = trimmed(value);
  if (value.empty()) return std::nullopt;
  if (value.find_first_not_of("0123456789") == std::string_view::npos) {
    const auto seconds = parse_number(value);
    return seconds && *seconds <= 3600 ? std::chrono::seconds(*seconds) : kLongest;
  }
  const std::chrono::year_month_day today(std::chrono::floor<std::chrono::days>(now));
  const std::optional<Seconds> date = seconds_of_http_date(value, static_cast<int>(today.year()));
  if (!date) return std::nullopt;
  // Compared in seconds: a year like 9999 does not fit into the clock's nanoseconds.
  const Seconds now_seconds = std::chrono::floor<std::chrono::seconds>(now);
  if (*date <= now_seconds) return std::chrono::milliseconds(0);
  if (*date - now_seconds > kLongest) return kLongest;
  return std::chrono::ceil<std::chrono::milliseconds>(system_clock::time_point(*date) - now);
}

Result<system_clock::time_point> parse_rfc3339(std::string_view text) {
  const auto malformed = [text] {
    return invalid_argument("a time of ", text.size(),
                            " bytes that cannot be read: ", text.substr(0, 40));
  };
  constexpr std::string_view kLayout = "0000-00-00T00:00:00";
  constexpr size_t kTAt = kLayout.find('T');
  if (text.size() < kLayout.size()) return malformed();
  bool fits = true;  // no early exit, and no scanner: listings have a time for each name
  for (size_t i = 0; i < kLayout.size(); ++i) {
    const char c = text[i];
    fits &= kLayout[i] == '0' ? c >= '0' && c <= '9' : c == kLayout[i] || (i == kTAt && c == 't');
  }
  if (!fits) return malformed();
  const auto pair_at = [text](size_t i) { return 10 * (text[i] - '0') + (text[i + 1] - '0'); };
  const int year = 100 * pair_at(0) + pair_at(2), month = pair_at(5), day = pair_at(8);
  const Clock clock{.hour = pair_at(11), .minute = pair_at(14), .second = pair_at(17)};
  Scanner scanner(text.substr(kLayout.size()));
  int64_t nanoseconds = 0;
  if (scanner.ok() && scanner.peek() == '.') {
    scanner.literal(".");
    int64_t unit = 100'000'000;
    do {
      nanoseconds += unit * scanner.digits(1);
      unit /= 10;
    } while (scanner.ok() && scanner.peek() >= '0' && scanner.peek() <= '9');
  }
  std::chrono::minutes offset{0};
  if (const char sign = scanner.peek(); sign == '+' || sign == '-') {
    scanner.literal({&sign, 1});
    const int hours = scanner.digits(2);
    scanner.literal(":");
    const int minutes = scanner.digits(2);
    if (hours > 23 || minutes > 59) scanner.fail();
    offset = std::chrono::minutes(hours * 60 + minutes) * (sign == '-' ? -1 : 1);
  } else if (sign == 'z') {
    scanner.literal("z");
  } else {
    scanner.literal("Z");
  }
  if (!scanner.at_end()) return malformed();
  const std::optional<Seconds> seconds = to_time(year, month, day, clock);
  if (!seconds) return malformed();
  const Seconds utc = *seconds - offset;
  if (utc < kBegin || utc >= kEnd) return malformed();
  return std::chrono::time_point_cast<system_clock::duration>(
      utc + std::chrono::nanoseconds(nanoseconds));
}

}  // namespace headrace
