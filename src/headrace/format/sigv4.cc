#include "headrace/format/sigv4.h"

// SHA-256 without EVP: its contexts live in allocated memory, and copying one behind HMAC's first
// block costs more than the block (docs/decisions/2026-11-22-signing.md).
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <span>
#include <vector>

#include "headrace/base/ascii.h"
#include "headrace/format/percent.h"

namespace headrace {
namespace {

using std::chrono::system_clock;

constexpr std::string_view kAlgorithm = "AWS4-HMAC-SHA256";
constexpr size_t kBlockBytes = 64, kSumBytes = 32;

using Sum = std::array<unsigned char, kSumBytes>;
using Hex = std::array<char, 2 * kSumBytes>;

constexpr std::array<std::array<char, 2>, 256> kHexPairs = [] {
  std::array<std::array<char, 2>, 256> pairs{};
  for (size_t i = 0; i < pairs.size(); ++i) pairs[i] = {kHexDigits[i >> 4], kHexDigits[i & 15]};
  return pairs;
}();

Hex to_hex(const Sum& sum) {
  Hex hex;
  for (size_t i = 0; i < sum.size(); ++i) {
    std::memcpy(hex.data() + 2 * i, kHexPairs[sum[i]].data(), 2);
  }
  return hex;
}

std::string_view view(std::span<const char> text) { return {text.data(), text.size()}; }

using State = std::array<uint32_t, 8>;

template <class Number>
Number big_endian(Number number) {
  return std::endian::native == std::endian::little ? std::byteswap(number) : number;
}

std::string_view view(const Sum& sum) {
  return {reinterpret_cast<const char*>(sum.data()), sum.size()};
}

// The sum of many small texts. They are gathered and padded here: the library takes longer for a
// call than for a block, and as long again for the end.
class TextSum {
 public:
  TextSum() { SHA256_Init(&state_); }
  // Goes on from `state`, the state after `bytes_before` bytes (whole blocks).
  TextSum(const State& state, uint64_t bytes_before) : bytes_before_(bytes_before) {
    SHA256_Init(&state_);
    std::ranges::copy(state, state_.h);
  }

  TextSum& add(std::string_view text) {
    while (text.size() > kGatheredBytes - size_) {
      const size_t taken = kGatheredBytes - size_;
      std::memcpy(gathered_.data() + size_, text.data(), taken);
      size_ = kGatheredBytes;
      text.remove_prefix(taken);
      sum_blocks();
    }
    if (!text.empty()) std::memcpy(gathered_.data() + size_, text.data(), text.size());
    size_ += text.size();
    return *this;
  }
  TextSum& add(char c) {
    if (size_ == kGatheredBytes) sum_blocks();
    gathered_[size_++] = static_cast<unsigned char>(c);
    return *this;
  }
  // The state behind the whole blocks that came, and the rest of the text.
  State state(std::string& rest) {
    const size_t rest_bytes = size_ % kBlockBytes;
    rest.assign(reinterpret_cast<const char*>(gathered_.data()) + size_ - rest_bytes, rest_bytes);
    size_ -= rest_bytes;
    sum_blocks();
    State state;
    std::ranges::copy(state_.h, state.begin());
    return state;
  }
  uint64_t bytes() const { return bytes_before_ + size_; }

  Sum finish() {
    const uint64_t bits = 8 * bytes();
    const size_t end = (size_ + kPaddingBytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
    gathered_[size_] = 0x80;
    std::memset(gathered_.data() + size_ + 1, 0, end - size_ - 1);
    const uint64_t length = big_endian(bits);
    std::memcpy(gathered_.data() + end - sizeof(length), &length, sizeof(length));
    size_ = end;
    sum_blocks();
    Sum sum;
    for (size_t i = 0; i < sum.size() / sizeof(uint32_t); ++i) {
      const uint32_t word = big_endian(uint32_t{state_.h[i]});
      std::memcpy(sum.data() + i * sizeof(word), &word, sizeof(word));
    }
    return sum;
  }

 private:
  static constexpr size_t kGatheredBytes = 16 * kBlockBytes;
  static constexpr size_t kPaddingBytes = 9;  // at least: a one, and the length

  void sum_blocks() {
    SHA256_Update(&state_, gathered_.data(), size_);
    bytes_before_ += size_;
    size_ = 0;
  }

  SHA256_CTX state_;
  uint64_t bytes_before_ = 0;
  std::array<unsigned char, kGatheredBytes + kBlockBytes> gathered_;  // with room for the padding
  size_t size_ = 0;
};

// The states of SHA-256 behind HMAC's two pads (RFC 2104).
struct HmacKey {
  State inner, outer;

  explicit HmacKey(std::string_view key) {
    std::array<unsigned char, kBlockBytes> block{};
    if (key.size() > block.size()) {
      SHA256(reinterpret_cast<const unsigned char*>(key.data()), key.size(), block.data());
    } else if (!key.empty()) {
      std::memcpy(block.data(), key.data(), key.size());
    }
    inner = state_behind(block, 0x36);
    outer = state_behind(block, 0x5C);
  }
  TextSum begin() const { return {inner, kBlockBytes}; }
  static Sum finish(TextSum& text, const State& outer) {
    return TextSum(outer, kBlockBytes).add(view(text.finish())).finish();
  }
  Sum sum(std::string_view text) const { return finish(begin().add(text), outer); }

 private:
  static State state_behind(std::array<unsigned char, kBlockBytes> block, unsigned char pad) {
    for (unsigned char& byte : block) byte ^= pad;
    SHA256_CTX state;
    SHA256_Init(&state);
    SHA256_Transform(&state, block.data());
    State out;
    std::ranges::copy(state.h, out.begin());
    return out;
  }
};

// "20261122T101112Z"; its first eight characters are the day.
std::array<char, 16> to_text(system_clock::time_point time) {
  const auto day = std::chrono::floor<std::chrono::days>(time);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss clock(std::chrono::floor<std::chrono::seconds>(time - day));
  std::array<char, 16> text;
  const auto put = [&text](size_t begin, size_t digits, unsigned value) {
    for (size_t i = digits; i-- > 0; value /= 10) {
      text[begin + i] = static_cast<char>('0' + value % 10);
    }
  };
  put(0, 4, static_cast<unsigned>(static_cast<int>(date.year())));
  put(4, 2, static_cast<unsigned>(date.month()));
  put(6, 2, static_cast<unsigned>(date.day()));
  text[8] = 'T';
  put(9, 2, static_cast<unsigned>(clock.hours().count()));
  put(11, 2, static_cast<unsigned>(clock.minutes().count()));
  put(13, 2, static_cast<unsigned>(clock.seconds().count()));
  text[15] = 'Z';
  return text;
}

// A header or a query parameter.
struct Pair {
  std::string_view name, value;
  bool operator<(const Pair& other) const {
    return name != other.name ? name < other.name : value < other.value;
  }
};

bool is_signed(std::string_view name) {
  switch (name.empty() ? '\0' : ascii_lower(name[0])) {
    case 'x': return name.size() > 6 && same_ignoring_case(name.substr(0, 6), "x-amz-");
    case 'c':
      return same_ignoring_case(name, "content-type") || same_ignoring_case(name, "content-md5");
    default: return false;
  }
}

// The headers that a signature covers. Kept from request to request: as a rule the next one has
// headers of the same names, so that only their values are new. Thread: confined.
class SignedHeaders {
 public:
  // Those of `lines` that `is_wanted`, and the host. Views of the lines are kept until the next
  // call.
  template <class Predicate>
  void find(std::string_view authority, std::string_view lines, const Predicate& is_wanted) {
    count_ = 0;
    are_same_ = true;
    take("host", authority);
    while (!lines.empty()) {
      const size_t end = std::min(lines.find("\r\n"), lines.size());
      const std::string_view line = lines.substr(0, end);
      lines.remove_prefix(std::min(end + 2, lines.size()));
      const size_t colon = line.find(':');
      if (colon == line.npos || colon == 0 || !is_wanted(line.substr(0, colon))) continue;
      take(line.substr(0, colon), line.substr(colon + 1));
    }
    if (!are_same_ || order_.size() != count_) put_in_order();
  }

  // "host;x-amz-date"
  std::string_view names() const { return names_; }

  void add_to(TextSum& sum) const {
    for (const Header* const header : order_) {
      sum.add(header->before);
      add_value(sum, header->value);
    }
    sum.add("\n\n").add(names_);
  }

 private:
  struct Header {
    std::string sent_name, name;  // as the line has it; in lower case
    std::string before;           // the value, in the text that is signed
    std::string_view value;
  };

  void take(std::string_view name, std::string_view value) {
    if (count_ == headers_.size()) headers_.emplace_back();
    Header& header = headers_[count_++];
    if (header.sent_name != name) {
      header.sent_name = name;
      header.name = name;
      for (char& c : header.name) c = ascii_lower(c);
      are_same_ = false;
    }
    header.value = trimmed(value);
  }

  void put_in_order() {
    order_.clear();
    for (size_t i = 0; i < count_; ++i) order_.push_back(&headers_[i]);
    // Those of one name in the order of the lines, which is that in memory.
    std::ranges::sort(order_, [](const Header* a, const Header* b) {
      const int order = a->name.compare(b->name);
      return order < 0 || (order == 0 && std::less<>()(a, b));
    });
    names_.clear();
    const Header* last = nullptr;
    for (Header* const header : order_) {
      if (last != nullptr && last->name == header->name) {
        header->before = ",";
        continue;
      }
      header->before = "\n";
      header->before.append(header->name).append(":");
      names_.append(last == nullptr ? "" : ";").append(header->name);
      last = header;
    }
  }

  // Blanks in a row count as one.
  static void add_value(TextSum& sum, std::string_view value) {
    const auto blank_in = [](std::string_view text) {  // two searches of the library's fast kind
      return std::min(std::min(text.find(' '), text.find('\t')), text.size());
    };
    for (size_t blank; (blank = blank_in(value)) < value.size();) {
      sum.add(value.substr(0, blank)).add(' ');
      value.remove_prefix(std::min(value.find_first_not_of(" \t", blank), value.size()));
    }
    sum.add(value);
  }

  std::vector<Header> headers_;
  size_t count_ = 0;  // of those in `headers_`: the first ones
  bool are_same_ = false;
  std::vector<Header*> order_;
  std::string names_;
};

SignedHeaders& kept_headers() {
  thread_local SignedHeaders headers;
  return headers;
}

void add_query(TextSum& sum, std::string_view query) {
  if (query.empty()) return;
  thread_local std::vector<Pair> parameters;  // keeps its memory from request to request
  parameters.clear();
  while (!query.empty()) {
    const std::string_view item = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(item.size() + 1, query.size()));
    if (item.empty()) continue;
    const size_t equals = std::min(item.find('='), item.size());
    parameters.push_back({item.substr(0, equals), item.substr(std::min(equals + 1, item.size()))});
  }
  std::ranges::sort(parameters, std::less<Pair>());
  bool is_first = true;
  for (const Pair& each : parameters) {
    if (!is_first) sum.add('&');
    is_first = false;
    sum.add(each.name).add('=').add(each.value);
  }
}

// What the text that is signed begins with is the same for all requests of a second: its whole
// blocks are summed once. Thread: confined.
class SignedSecond {
 public:
  void set(const SigV4Key& key, system_clock::time_point now) {
    const auto second = std::chrono::floor<std::chrono::seconds>(now);
    if (second == second_ && key.inner() == key_) return;
    second_ = second;
    key_ = key.inner();
    date_ = to_text(now);
    TextSum begin(key_, kBlockBytes);
    begin.add(kAlgorithm).add('\n').add(date()).add('\n').add(key.scope()).add('\n');
    state_ = begin.state(rest_);
    bytes_ = begin.bytes();
  }
  std::string_view date() const { return view(date_); }
  // The sum of the text, once the rest of it was added.
  TextSum begin() const {
    TextSum sum(state_, bytes_);
    sum.add(rest_);
    return sum;
  }

 private:
  std::chrono::sys_seconds second_{};
  State key_{};  // another one for each identity, day and place
  std::array<char, 16> date_{};
  State state_{};
  uint64_t bytes_ = 0;  // behind which that is the state
  std::string rest_;
};

const SignedSecond& signed_second(const SigV4Key& key, system_clock::time_point now) {
  thread_local SignedSecond second;
  second.set(key, now);
  return second;
}

Hex sign_request(std::string_view method, std::string_view target, const SignedHeaders& headers,
                 std::string_view payload, const SigV4Key& key, const SignedSecond& second) {
  const size_t mark = std::min(target.find('?'), target.size());
  const std::string_view path = target.substr(0, mark);
  TextSum canonical;
  canonical.add(method).add('\n').add(path.empty() ? "/" : path).add('\n');
  add_query(canonical, target.substr(std::min(mark + 1, target.size())));
  headers.add_to(canonical);
  const Hex sum = to_hex(canonical.add('\n').add(payload).finish());
  TextSum text = second.begin();
  return to_hex(HmacKey::finish(text.add(view(sum)), key.outer()));
}

}  // namespace

Result<SigV4Key> SigV4Key::derive(const AwsKeys& keys, std::string_view region,
                                  std::string_view service, system_clock::time_point now) {
  const struct {
    const char* what;
    std::string_view text;
    bool may_be_empty;
  } texts[] = {{"the access key id", keys.access_key_id, false},
               {"the secret access key", keys.secret_access_key, false},
               {"the session token", keys.session_token, true},
               {"the region", region, false},
               {"the service", service, false}};
  for (const auto& each : texts) {
    if (each.text.empty() && !each.may_be_empty) {
      return invalid_argument(each.what, " to sign requests with is empty");
    }
    if (!is_visible_ascii(each.text)) {
      return invalid_argument(each.what,
                              " to sign requests with must consist of visible ASCII characters, "
                              "without blanks and line breaks");
    }
  }
  SigV4Key key;
  key.day_ = std::chrono::floor<std::chrono::days>(now);
  const std::array<char, 16> date = to_text(key.day_);
  const std::string_view day = view(date).substr(0, 8);
  Sum sum = HmacKey(cat("AWS4", keys.secret_access_key)).sum(day);
  for (const std::string_view text : {region, service, std::string_view("aws4_request")}) {
    sum = HmacKey(view(sum)).sum(text);
  }
  const HmacKey last(view(sum));
  key.inner_ = last.inner;
  key.outer_ = last.outer;
  const std::string credential =
      cat(keys.access_key_id, "/", day, "/", region, "/", service, "/aws4_request");
  key.authorization_ =
      cat("Authorization: ", kAlgorithm, " Credential=", credential, ", SignedHeaders=");
  key.credential_at_ = key.authorization_.find(credential);
  key.credential_size_ = credential.size();
  key.access_key_id_size_ = keys.access_key_id.size();
  key.session_token_ = keys.session_token;
  return key;
}

void sign_headers(const SigV4Request& request, std::string_view payload, const SigV4Key& key,
                  system_clock::time_point now, std::string& header_lines) {
  const SignedSecond& second = signed_second(key, now);
  header_lines.append("x-amz-content-sha256: ").append(payload);
  header_lines.append("\r\nx-amz-date: ").append(second.date());
  if (!key.session_token().empty()) {
    header_lines.append("\r\nx-amz-security-token: ").append(key.session_token());
  }
  header_lines.append("\r\n");
  SignedHeaders& headers = kept_headers();
  headers.find(request.authority, header_lines, is_signed);
  const Hex signed_as = sign_request(request.method, request.target, headers, payload, key, second);
  header_lines.append(key.authorization())
      .append(headers.names())
      .append(", Signature=")
      .append(view(signed_as))
      .append("\r\n");
}

std::array<char, 64> sigv4_signature(const SigV4Request& request, std::string_view header_lines,
                                     std::string_view payload, const SigV4Key& key,
                                     system_clock::time_point now) {
  SignedHeaders& headers = kept_headers();
  headers.find(request.authority, header_lines, [](std::string_view) { return true; });
  return sign_request(request.method, request.target, headers, payload, key,
                      signed_second(key, now));
}

void presign(std::string_view method, std::string_view authority, std::string_view header_lines,
             const SigV4Key& key, system_clock::time_point now, std::chrono::seconds valid_for,
             std::string& target) {
  const SignedSecond& second = signed_second(key, now);
  SignedHeaders& headers = kept_headers();
  headers.find(authority, header_lines, is_signed);
  target.append(target.find('?') == target.npos ? "?" : "&");
  target.append("X-Amz-Algorithm=").append(kAlgorithm).append("&X-Amz-Credential=");
  percent_encode_to(target, key.credential());
  target.append("&X-Amz-Date=").append(second.date()).append("&X-Amz-Expires=");
  target.append(std::to_string(valid_for.count())).append("&X-Amz-SignedHeaders=");
  percent_encode_to(target, headers.names());
  if (!key.session_token().empty()) {
    target.append("&X-Amz-Security-Token=");
    percent_encode_to(target, key.session_token());
  }
  const Hex signed_as = sign_request(method, target, headers, kUnsignedPayload, key, second);
  target.append("&X-Amz-Signature=").append(view(signed_as));
}

}  // namespace headrace
