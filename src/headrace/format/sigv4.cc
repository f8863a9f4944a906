#include "headrace/format/sigv4.h"

// SHA-256 without EVP: its contexts live in allocated memory, and copying one behind HMAC's first
// block costs more than the block (docs/decisions/2026-11-22-signing.md).
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>

#include <algorithm>
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

// The sum of many small texts, which are gathered first: the library takes longer for a call than
// for a block.
class TextSum {
 public:
  TextSum() { SHA256_Init(&state_); }
  // As if one block had been summed, and this were the state behind it.
  explicit TextSum(const std::array<uint32_t, 8>& behind_first_block) {
    SHA256_Init(&state_);
    std::ranges::copy(behind_first_block, state_.h);
    state_.Nl = 8 * kBlockBytes;
  }

  TextSum& add(std::string_view text) {
    if (text.size() > gathered_.size() - size_) {
      flush();
      if (text.size() > gathered_.size()) {
        SHA256_Update(&state_, text.data(), text.size());
        return *this;
      }
    }
    if (!text.empty()) std::memcpy(gathered_.data() + size_, text.data(), text.size());
    size_ += text.size();
    return *this;
  }
  TextSum& add(char c) { return add(std::string_view(&c, 1)); }
  Sum finish() {
    flush();
    Sum sum;
    SHA256_Final(sum.data(), &state_);
    return sum;
  }

 private:
  void flush() {
    SHA256_Update(&state_, gathered_.data(), size_);
    size_ = 0;
  }

  SHA256_CTX state_;
  std::array<char, 1024> gathered_;
  size_t size_ = 0;
};

// The states of SHA-256 behind HMAC's two pads (RFC 2104).
struct HmacKey {
  std::array<uint32_t, 8> inner, outer;

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
  static Sum sum(const std::array<uint32_t, 8>& inner, const std::array<uint32_t, 8>& outer,
                 std::initializer_list<std::string_view> pieces) {
    TextSum text(inner);
    for (const std::string_view piece : pieces) text.add(piece);
    const Sum first = text.finish();
    return TextSum(outer).add({reinterpret_cast<const char*>(first.data()), first.size()}).finish();
  }
  Sum sum(std::string_view text) const { return sum(inner, outer, {text}); }

 private:
  static std::array<uint32_t, 8> state_behind(std::array<unsigned char, kBlockBytes> block,
                                              unsigned char pad) {
    for (unsigned char& byte : block) byte ^= pad;
    SHA256_CTX state;
    SHA256_Init(&state);
    SHA256_Transform(&state, block.data());
    std::array<uint32_t, 8> out;
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

std::string_view trimmed(std::string_view text) {
  while (text.starts_with(' ') || text.starts_with('\t')) text.remove_prefix(1);
  while (text.ends_with(' ') || text.ends_with('\t')) text.remove_suffix(1);
  return text;
}

// The headers that a signature covers. Kept from request to request, for its memory.
// Thread: confined.
class SignedHeaders {
 public:
  // Those of `lines` that `is_wanted`, and the host. Views of the lines are kept until the next
  // call.
  template <class Predicate>
  void find(std::string_view authority, std::string_view lines, const Predicate& is_wanted) {
    headers_.clear();
    lower_.clear();
    lower_.reserve(lines.size());  // so that what is in it stays in place
    while (!lines.empty()) {
      const size_t end = std::min(lines.find("\r\n"), lines.size());
      const std::string_view line = lines.substr(0, end);
      lines.remove_prefix(std::min(end + 2, lines.size()));
      const size_t colon = line.find(':');
      if (colon == line.npos || colon == 0 || !is_wanted(line.substr(0, colon))) continue;
      headers_.push_back({lower(line.substr(0, colon)), trimmed(line.substr(colon + 1))});
    }
    headers_.push_back({"host", trimmed(authority)});
    // Those of one name in the order of the lines, which is that of the lower-case names, too.
    std::ranges::sort(headers_, [](const Pair& a, const Pair& b) {
      const int order = a.name.compare(b.name);
      return order < 0 || (order == 0 && a.name.data() < b.name.data());
    });
    names_.clear();
    for (size_t i = 0; i < headers_.size(); ++i) {
      if (is_repeated(i)) continue;
      if (i > 0) names_ += ';';
      names_ += headers_[i].name;
    }
  }

  // "host;x-amz-date"
  const std::string& names() const { return names_; }

  void add_to(TextSum& sum) const {
    for (size_t i = 0; i < headers_.size(); ++i) {
      if (is_repeated(i)) {
        sum.add(',');
      } else {
        sum.add('\n').add(headers_[i].name).add(':');
      }
      add_value(sum, headers_[i].value);
    }
    sum.add("\n\n").add(names_);
  }

 private:
  bool is_repeated(size_t i) const { return i > 0 && headers_[i - 1].name == headers_[i].name; }

  std::string_view lower(std::string_view name) {
    const size_t begin = lower_.size();
    lower_ += name;
    for (char& c : std::span(lower_).subspan(begin)) c = ascii_lower(c);
    return std::string_view(lower_).substr(begin);
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

  std::vector<Pair> headers_;
  std::string lower_, names_;
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

Hex sign_request(std::string_view method, std::string_view target, const SignedHeaders& headers,
                 std::string_view payload, const SigV4Key& key, std::string_view date) {
  const size_t mark = std::min(target.find('?'), target.size());
  const std::string_view path = target.substr(0, mark);
  TextSum canonical;
  canonical.add(method).add('\n').add(path.empty() ? "/" : path).add('\n');
  add_query(canonical, target.substr(std::min(mark + 1, target.size())));
  headers.add_to(canonical);
  const Hex sum = to_hex(canonical.add('\n').add(payload).finish());

  return key.sign({kAlgorithm, "\n", date, "\n", key.scope(), "\n", view(sum)});
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
  const auto next = [](const Sum& sum, std::string_view text) {
    return HmacKey({reinterpret_cast<const char*>(sum.data()), sum.size()}).sum(text);
  };
  Sum sum = HmacKey(cat("AWS4", keys.secret_access_key)).sum(day);
  for (const std::string_view text : {region, service, std::string_view("aws4_request")}) {
    sum = next(sum, text);
  }
  const HmacKey last({reinterpret_cast<const char*>(sum.data()), sum.size()});
  key.inner_ = last.inner;
  key.outer_ = last.outer;
  key.credential_ = cat(keys.access_key_id, "/", day, "/", region, "/", service, "/aws4_request");
  key.access_key_id_size_ = keys.access_key_id.size();
  key.session_token_ = keys.session_token;
  return key;
}

std::array<char, 64> SigV4Key::sign(std::initializer_list<std::string_view> pieces) const {
  return to_hex(HmacKey::sum(inner_, outer_, pieces));
}

void sign_headers(const SigV4Request& request, std::string_view payload, const SigV4Key& key,
                  system_clock::time_point now, std::string& header_lines) {
  const std::array<char, 16> date = to_text(now);
  header_lines.append("x-amz-content-sha256: ").append(payload);
  header_lines.append("\r\nx-amz-date: ").append(view(date));
  if (!key.session_token().empty()) {
    header_lines.append("\r\nx-amz-security-token: ").append(key.session_token());
  }
  header_lines.append("\r\n");
  SignedHeaders& headers = kept_headers();
  headers.find(request.authority, header_lines, is_signed);
  const Hex signed_as =
      sign_request(request.method, request.target, headers, payload, key, view(date));
  header_lines.append("Authorization: ").append(kAlgorithm).append(" Credential=");
  header_lines.append(key.credential()).append(", SignedHeaders=");
  header_lines.append(headers.names())
      .append(", Signature=")
      .append(view(signed_as))
      .append("\r\n");
}

std::array<char, 64> sigv4_signature(const SigV4Request& request, std::string_view header_lines,
                                     std::string_view payload, const SigV4Key& key,
                                     system_clock::time_point now) {
  SignedHeaders& headers = kept_headers();
  headers.find(request.authority, header_lines, [](std::string_view) { return true; });
  const std::array<char, 16> date = to_text(now);
  return sign_request(request.method, request.target, headers, payload, key, view(date));
}

void presign(std::string_view method, std::string_view authority, std::string_view header_lines,
             const SigV4Key& key, system_clock::time_point now, std::chrono::seconds valid_for,
             std::string& target) {
  const std::array<char, 16> date = to_text(now);
  SignedHeaders& headers = kept_headers();
  headers.find(authority, header_lines, is_signed);
  target.append(target.find('?') == target.npos ? "?" : "&");
  target.append("X-Amz-Algorithm=").append(kAlgorithm).append("&X-Amz-Credential=");
  percent_encode_to(target, key.credential());
  target.append("&X-Amz-Date=").append(view(date)).append("&X-Amz-Expires=");
  target.append(std::to_string(valid_for.count())).append("&X-Amz-SignedHeaders=");
  percent_encode_to(target, headers.names());
  if (!key.session_token().empty()) {
    target.append("&X-Amz-Security-Token=");
    percent_encode_to(target, key.session_token());
  }
  const Hex signed_as = sign_request(method, target, headers, kUnsignedPayload, key, view(date));
  target.append("&X-Amz-Signature=").append(view(signed_as));
}

}  // namespace headrace
