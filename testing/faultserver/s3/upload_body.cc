// Bodies of uploads: what form they may have, and how chunks with a trailer are taken apart.
#include <algorithm>
#include <charconv>

#include "s3/s3.h"
#include "s3/xml.h"
#include "text.h"

namespace faultserver::s3 {
namespace {

// `Content-Encoding: aws-chunked`: takes the body apart and makes headers of its trailers.
// https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-streaming-trailers.html
std::optional<Response> decode_chunks(Request& request, const Route& route) {
  constexpr size_t kLeastChunkBytes = 8192;
  const std::string_view form = request.header("x-amz-content-sha256");
  if (!form.starts_with("STREAMING-")) return std::nullopt;
  if (form != "STREAMING-UNSIGNED-PAYLOAD-TRAILER") {
    return error(route, 501, "NotImplemented", "Signatures of single chunks are not checked here.");
  }
  const std::optional<uint64_t> length = parse_u64(request.header("x-amz-decoded-content-length"));
  if (!length) {
    return error(route, 411, "MissingContentLength",
                 "You must provide the Content-Length HTTP header.");
  }
  const auto incomplete = [&route] {
    return error(route, 400, "IncompleteBody",
                 "The request body terminated unexpectedly or is not well-formed.");
  };
  std::string_view rest = request.body;
  const auto next_line = [&rest]() -> std::optional<std::string_view> {
    const size_t end = rest.find("\r\n");
    if (end == std::string_view::npos) return std::nullopt;
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end + 2);
    return line;
  };
  std::string body;
  body.reserve(std::min<uint64_t>(*length, rest.size()));
  size_t last_size = kLeastChunkBytes;
  while (true) {
    const std::optional<std::string_view> line = next_line();
    if (!line) return incomplete();
    const std::string_view digits = line->substr(0, line->find(';'));
    size_t size = 0;
    const auto [end, wrong] =
        std::from_chars(digits.data(), digits.data() + digits.size(), size, 16);
    if (wrong != std::errc{} || end != digits.data() + digits.size()) return incomplete();
    if (size == 0) break;
    if (last_size < kLeastChunkBytes) {
      return error(route, 403, "InvalidChunkSizeError",
                   "Only the last chunk is allowed to have a size less than 8192 bytes");
    }
    last_size = size;
    if (size > rest.size() || !rest.substr(size).starts_with("\r\n")) return incomplete();
    body += rest.substr(0, size);
    rest.remove_prefix(size + 2);
  }
  if (body.size() != *length) return incomplete();
  const std::string announced = lower(request.header("x-amz-trailer"));
  size_t found_count = 0;
  while (!rest.empty()) {
    const std::optional<std::string_view> line = next_line();
    if (!line) return incomplete();
    if (line->empty()) break;
    const size_t colon = line->find(':');
    const std::string name = lower(trim(line->substr(0, colon)));
    if (colon == std::string_view::npos || name != announced) {
      return error(route, 400, "MalformedTrailerError",
                   "The request contained trailing data that was not well-formed or did not "
                   "conform to our published schema.");
    }
    request.headers.emplace_back(name, trim(line->substr(colon + 1)));
    ++found_count;
  }
  if (!announced.empty() && found_count != 1) {
    return error(route, 400, "MalformedTrailerError",
                 "The trailer that was announced has not come.");
  }
  request.body = std::move(body);
  return std::nullopt;
}

// What is wrong with the form of an upload, whatever it brings.
std::optional<Response> wrong_form(const Request& request, const Route& route) {
  const bool is_chunked = !request.header("transfer-encoding").empty();
  if (is_chunked && request.header("x-amz-decoded-content-length").empty()) {
    return error(route, 501, "NotImplemented", usual_message(501, true),
                 element("Header", "Transfer-Encoding"));
  }
  if (!is_chunked && request.header("content-length").empty()) {
    return error(route, 411, "MissingContentLength",
                 "You must provide the Content-Length HTTP header.");
  }
  return std::nullopt;
}

}  // namespace

std::optional<Response> unwrap_body(Request& request, const Route& route) {
  if (std::optional<Response> wrong = wrong_form(request, route)) return wrong;
  return decode_chunks(request, route);
}

}  // namespace faultserver::s3
