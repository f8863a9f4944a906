#include "http.h"

#include <algorithm>
#include <charconv>

#include "text.h"

namespace faultserver {

std::string_view find_header(const Headers& headers, std::string_view name) {
  for (const auto& [key, value] : headers) {
    if (equal_ignoring_case(key, name)) return value;
  }
  return {};
}

bool has_header(const Headers& headers, std::string_view name) {
  return std::ranges::any_of(
      headers, [name](const auto& header) { return equal_ignoring_case(header.first, name); });
}

namespace {

// Calls `visit(raw_name, raw_value)` for each parameter until it returns false.
template <typename Visit>
void each_parameter(std::string_view query, Visit visit) {
  while (!query.empty()) {
    const size_t end = query.find('&');
    const std::string_view piece = query.substr(0, end);
    const size_t equals = piece.find('=');
    const std::string_view value =
        equals == std::string_view::npos ? std::string_view() : piece.substr(equals + 1);
    if (!piece.empty() && !visit(piece.substr(0, equals), value)) return;
    if (end == std::string_view::npos) return;
    query.remove_prefix(end + 1);
  }
}

}  // namespace

bool Request::has_parameter(std::string_view name) const {
  bool found = false;
  each_parameter(query, [&](std::string_view key, std::string_view) {
    found = key == name;
    return !found;
  });
  return found;
}

std::string Request::parameter(std::string_view name) const {
  std::string found;
  each_parameter(query, [&](std::string_view key, std::string_view value) {
    if (key != name) return true;
    found = percent_decode(value, /*plus_is_space=*/true);
    return false;
  });
  return found;
}

std::vector<std::string> Request::parameters(std::string_view name) const {
  std::vector<std::string> found;
  each_parameter(query, [&](std::string_view key, std::string_view value) {
    if (key == name) found.push_back(percent_decode(value, /*plus_is_space=*/true));
    return true;
  });
  return found;
}

bool Request::wants_close() const {
  const std::string_view value = header("connection");
  if (minor_version == 0) return !equal_ignoring_case(value, "keep-alive");
  return equal_ignoring_case(value, "close");
}

Parsed parse_head(std::string_view bytes, Request& request, size_t& head_bytes) {
  constexpr size_t kMaxHeadBytes = size_t{1} << 20;
  const size_t end = bytes.find("\r\n\r\n");
  if (end == std::string_view::npos) {
    return bytes.size() > kMaxHeadBytes ? Parsed::kBad : Parsed::kIncomplete;
  }
  head_bytes = end + 4;
  std::string_view head = bytes.substr(0, end + 2);
  const auto next_line = [&head] {
    const size_t line_end = head.find("\r\n");
    const std::string_view line = head.substr(0, line_end);
    head.remove_prefix(line_end + 2);
    return line;
  };
  const std::string_view first = next_line();
  const size_t method_end = first.find(' ');
  const size_t target_end = first.rfind(' ');
  if (method_end == std::string_view::npos || target_end <= method_end) return Parsed::kBad;
  const std::string_view version = first.substr(target_end + 1);
  if (version != "HTTP/1.1" && version != "HTTP/1.0") return Parsed::kBad;
  request.minor_version = version.back() - '0';
  request.method = first.substr(0, method_end);
  request.target = first.substr(method_end + 1, target_end - method_end - 1);
  std::string_view target = request.target;
  if (target.starts_with("http://") || target.starts_with("https://")) {
    request.absolute_form = true;
    const size_t path_begin = target.find('/', target.find("://") + 3);
    target =
        path_begin == std::string_view::npos ? std::string_view("/") : target.substr(path_begin);
  }
  const size_t question = target.find('?');
  request.path = target.substr(0, question);
  if (question != std::string_view::npos) request.query = target.substr(question + 1);
  while (!head.empty()) {
    const std::string_view line = next_line();
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos || colon == 0) return Parsed::kBad;
    request.headers.emplace_back(line.substr(0, colon), trim(line.substr(colon + 1)));
  }
  return Parsed::kDone;
}

size_t ChunkedDecoder::feed(std::string_view bytes, std::string& out) {
  size_t used = 0;
  while (used < bytes.size() && !done() && !bad()) {
    if (state_ == State::kData) {
      const size_t take = std::min<uint64_t>(left_bytes_, bytes.size() - used);
      out.append(bytes.substr(used, take));
      used += take;
      left_bytes_ -= take;
      if (left_bytes_ == 0) state_ = State::kDataEnd;
      continue;
    }
    line_ += bytes[used++];
    if (!line_.ends_with("\r\n")) continue;
    const std::string line = std::exchange(line_, {});
    if (state_ == State::kSize) {
      const auto [end, error] =
          std::from_chars(line.data(), line.data() + line.size(), left_bytes_, 16);
      if (error != std::errc{}) {
        state_ = State::kBad;
      } else {
        state_ = left_bytes_ == 0 ? State::kTrailer : State::kData;
      }
    } else if (state_ == State::kDataEnd) {
      state_ = line == "\r\n" ? State::kSize : State::kBad;
    } else if (line == "\r\n") {
      state_ = State::kDone;
    }
  }
  return used;
}

Range parse_range(std::string_view header, uint64_t size_bytes) {
  constexpr std::string_view kUnit = "bytes=";
  if (!header.starts_with(kUnit)) return {};
  header.remove_prefix(kUnit.size());
  const size_t dash = header.find('-');
  if (dash == std::string_view::npos || header.contains(',')) return {};
  const std::string_view first_text = trim(header.substr(0, dash));
  const std::string_view last_text = trim(header.substr(dash + 1));
  const std::optional<uint64_t> first = parse_u64(first_text);
  const std::optional<uint64_t> last = parse_u64(last_text);
  using enum Range::Kind;
  if (first_text.empty()) {
    if (!last) return {};
    if (*last == 0 || size_bytes == 0) return {kUnsatisfiable, 0, 0};
    return {kSatisfiable, size_bytes - std::min(*last, size_bytes), size_bytes};
  }
  if (!first || (!last_text.empty() && !last) || (last && *last < *first)) return {};
  if (*first >= size_bytes) return {kUnsatisfiable, 0, 0};
  const uint64_t end = last && *last < size_bytes - 1 ? *last + 1 : size_bytes;
  return {kSatisfiable, *first, end};
}

void Response::set(std::string_view name, std::string value) {
  for (auto& [key, old] : headers) {
    if (equal_ignoring_case(key, name)) {
      old = std::move(value);
      return;
    }
  }
  headers.emplace_back(name, std::move(value));
}

void Response::remove(std::string_view name) {
  std::erase_if(headers,
                [name](const auto& header) { return equal_ignoring_case(header.first, name); });
}

Response json_response(int status, std::string body) {
  Response response{.status = status, .body = Body(std::move(body))};
  response.headers = {{"Content-Type", "application/json; charset=UTF-8"},
                      {"Cache-Control", "no-cache, no-store, max-age=0, must-revalidate"}};
  return response;
}

std::string_view reason_phrase(int status) {
  switch (status) {
    case 200: return "OK";
    case 201: return "Created";
    case 204: return "No Content";
    case 206: return "Partial Content";
    case 301: return "Moved Permanently";
    case 304: return "Not Modified";
    case 307: return "Temporary Redirect";
    case 308: return "Resume Incomplete";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 409: return "Conflict";
    case 410: return "Gone";
    case 411: return "Length Required";
    case 412: return "Precondition Failed";
    case 413: return "Content Too Large";
    case 416: return "Requested Range Not Satisfiable";
    case 429: return "Too Many Requests";
    case 499: return "Client Closed Request";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 502: return "Bad Gateway";
    case 503: return "Service Unavailable";
    case 504: return "Gateway Timeout";
    default: return "Status";
  }
}

std::string serialise_head(const Response& response, uint64_t content_length) {
  std::string out;
  out.reserve(1024);
  out += "HTTP/1.1 ";
  append_number(out, static_cast<uint64_t>(response.status));
  if (!response.without_reason) {
    out += ' ';
    out += reason_phrase(response.status);
  }
  out += "\r\n";
  for (const auto& [name, value] : response.headers) {
    out += name;
    out += ": ";
    out += value;
    out += "\r\n";
  }
  if (response.chunked) {
    out += "Transfer-Encoding: chunked\r\n";
  } else if (response.status != 204 && response.status != 304 && response.status >= 200 &&
             !response.without_length) {
    out += "Content-Length: ";
    append_number(out, content_length);
    out += "\r\n";
  }
  out += "\r\n";
  return out;
}

std::string chunk_encoded(const Body& body) {
  constexpr uint64_t kChunkBytes = 32768;
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  const auto put_size = [&out](uint64_t size) {
    std::string digits;
    do {
      digits.insert(digits.begin(), kDigits[size & 15]);
      size >>= 4;
    } while (size != 0);
    out += digits + "\r\n";
  };
  out.reserve(body.size_bytes() + body.size_bytes() / kChunkBytes * 16 + 64);
  for (uint64_t at = 0; at < body.size_bytes();) {
    const uint64_t end = std::min(at + kChunkBytes, body.size_bytes());
    put_size(end - at);
    while (at < end) {
      const std::string_view piece = body.view(at).substr(0, end - at);
      out += piece;
      at += piece.size();
    }
    out += "\r\n";
  }
  put_size(0);
  return out + "\r\n";
}

}  // namespace faultserver
