// The signature is that of a second signer, which is written for the eye and not for speed: its own
// canonical request by maps and sorting, its own HMAC by OpenSSL. The input is a request: method,
// target, host and headers, a line each.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "fuzz/check.h"
#include "headrace/base/ascii.h"
#include "headrace/format/sigv4.h"

using namespace headrace;
using fuzz::check;

namespace {

std::string hex(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) {
    out += kHexDigits[static_cast<unsigned char>(c) >> 4];
    out += kHexDigits[static_cast<unsigned char>(c) & 15];
  }
  return out;
}

std::string sha256(std::string_view text) {
  std::string sum(32, '\0');
  EVP_Digest(text.data(), text.size(), reinterpret_cast<unsigned char*>(sum.data()), nullptr,
             EVP_sha256(), nullptr);
  return sum;
}

std::string hmac(std::string_view key, std::string_view text) {
  std::string sum(32, '\0');
  HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
       reinterpret_cast<const unsigned char*>(text.data()), text.size(),
       reinterpret_cast<unsigned char*>(sum.data()), nullptr);
  return sum;
}

std::string one_blank(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool is_blank = c == ' ' || c == '\t';
    if (!is_blank) out += c;
    if (is_blank && !out.empty() && out.back() != ' ') out += ' ';
  }
  while (out.ends_with(' ')) out.pop_back();
  return out;
}

std::vector<std::string> split(std::string_view text, std::string_view at) {
  std::vector<std::string> out;
  for (size_t end; (end = text.find(at)) != text.npos; text.remove_prefix(end + at.size())) {
    out.emplace_back(text.substr(0, end));
  }
  out.emplace_back(text);
  return out;
}

struct Signed {
  std::string names, signature;
};

Signed sign(const std::string& method, const std::string& target, const std::string& host,
            const std::string& lines, const std::string& payload, const std::string& secret,
            bool all) {
  const size_t mark = std::min(target.find('?'), target.size());
  std::string canonical = method + "\n" + (mark == 0 ? "/" : target.substr(0, mark)) + "\n";
  std::vector<std::pair<std::string, std::string>> parameters;
  for (const std::string& item : split(mark == target.size() ? "" : target.substr(mark + 1), "&")) {
    if (item.empty()) continue;
    const size_t equals = std::min(item.find('='), item.size());
    parameters.emplace_back(item.substr(0, equals),
                            equals == item.size() ? "" : item.substr(equals + 1));
  }
  std::ranges::sort(parameters);
  for (size_t i = 0; i < parameters.size(); ++i) {
    canonical += (i > 0 ? "&" : "") + parameters[i].first + "=" + parameters[i].second;
  }
  std::map<std::string, std::string> headers;
  for (const std::string& line : split(lines, "\r\n")) {
    const size_t colon = line.find(':');
    if (colon == line.npos || colon == 0) continue;
    const std::string name = ascii_lower(line.substr(0, colon));
    const bool is_signed = (name.starts_with("x-amz-") && name != "x-amz-") ||
                           name == "content-type" || name == "content-md5";
    if (!all && !is_signed) continue;
    const std::string value = one_blank(line.substr(colon + 1));
    if (const auto [at, is_new] = headers.emplace(name, value); !is_new) at->second += "," + value;
  }
  headers.emplace("host", one_blank(host));
  Signed out;
  canonical += "\n";
  for (const auto& [name, value] : headers) {
    canonical += name + ":" + value + "\n";
    out.names += (out.names.empty() ? "" : ";") + name;
  }
  canonical += "\n" + out.names + "\n" + payload;
  const std::string scope = "20261122/eu-west-1/s3/aws4_request";
  std::string key = hmac("AWS4" + secret, "20261122");
  for (const char* text : {"eu-west-1", "s3", "aws4_request"}) key = hmac(key, text);
  out.signature = hex(
      hmac(key, "AWS4-HMAC-SHA256\n20261122T101112Z\n" + scope + "\n" + hex(sha256(canonical))));
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = fuzz::as_text(data, size);
  fuzz::Choices choices(text);
  std::vector<std::string> input = split(text, "\n");
  input.resize(std::max<size_t>(input.size(), 3));
  const std::string method = input[0], target = input[1], host = input[2];
  std::string lines;
  for (size_t i = 3; i < input.size(); ++i) {
    // Without another host, and without a line break inside of a line.
    std::erase(input[i], '\r');
    if (!ascii_lower(input[i]).starts_with("host:")) lines += input[i] + "\r\n";
  }
  using namespace std::chrono_literals;
  const auto now = std::chrono::sys_days(2026y / 11 / 22) + 10h + 11min + 12s;
  const std::string secret(1 + choices() % 100, static_cast<char>('a' + choices() % 26));
  const std::string token(choices() % 2 * (choices() % 2000), 't');
  const SigV4Key key =
      SigV4Key::derive({.access_key_id = "A", .secret_access_key = secret, .session_token = token},
                       "eu-west-1", "s3", now)
          .value();
  const SigV4Request request{.method = method, .target = target, .authority = host};

  std::string sent = lines;
  sign_headers(request, kUnsignedPayload, key, now, sent);
  check(sent.starts_with(lines));
  const size_t last = sent.rfind("Authorization: ");
  const Signed expected = sign(method, target, host, sent.substr(0, last),
                               std::string(kUnsignedPayload), secret, /*all=*/false);
  check(sent.substr(last) ==
        "Authorization: AWS4-HMAC-SHA256 Credential=" + std::string(key.credential()) +
            ", SignedHeaders=" + expected.names + ", Signature=" + expected.signature + "\r\n");

  const std::array<char, 64> all = sigv4_signature(request, lines, kEmptyPayload, key, now);
  check(std::string_view(all.data(), all.size()) ==
        sign(method, target, host, lines, std::string(kEmptyPayload), secret, /*all=*/true)
            .signature);

  std::string url = target;
  presign(method, host, lines, key, now, 60s, url);
  const size_t signature_at = url.rfind("&X-Amz-Signature=");
  check(url.starts_with(target) && signature_at != url.npos);
  check(url.substr(signature_at + 17) == sign(method, url.substr(0, signature_at), host, lines,
                                              std::string(kUnsignedPayload), secret, false)
                                             .signature);
  return 0;
}
