#include "fuzz/hostile_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <simdjson.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "fuzz/check.h"
#include "headrace/base/result.h"
#include "headrace/format/json_quote.h"
#include "headrace/format/percent.h"

namespace headrace::fuzz {
namespace {

uint64_t number_of(std::string_view text) {
  uint64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

std::string decoded(std::string_view text) {
  return percent_decode(text).value_or(std::string(text));
}

std::string sum_of(std::string_view bytes) {
  return Crc32c().extended(as_bytes(bytes)).to_base64();
}

std::string resource(const std::string& name, const HostileServer::Object& object) {
  return cat("{\"name\":", json_quote(name), ",\"size\":\"", object.bytes.size(),
             "\",\"generation\":\"", object.generation, "\",\"metageneration\":\"1\",\"crc32c\":\"",
             sum_of(object.bytes), "\"}");
}

}  // namespace

uint8_t Script::byte() {
  if (bytes_.empty()) return 0;
  const uint8_t byte = bytes_.front();
  bytes_ = bytes_.subspan(1);
  return byte;
}

uint16_t Script::short_number() {
  const unsigned high = byte();
  return static_cast<uint16_t>(high << 8 | byte());
}

uint64_t Script::odd_number() {
  const uint8_t kind = byte();
  switch (kind % 8) {
    case 0: return kind / 8;
    case 1: return byte();
    case 2: return short_number();
    case 3: return UINT64_MAX - byte();
    case 4: return (uint64_t{1} << 63) - 128 + byte();
    case 5: return (uint64_t{1} << 32) - 128 + byte();
    case 6: return uint64_t{1} << byte() % 64;
    default: return 8192 - 128 + byte();
  }
}

std::string Script::text() {
  const size_t size = std::min<size_t>(byte(), bytes_.size());
  std::string text(as_text(bytes_.data(), size));
  bytes_ = bytes_.subspan(size);
  return text;
}

HostileServer::HostileServer() {
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_ANY);  // all of 127.0.0.0/8
  check(::bind(listener_, reinterpret_cast<sockaddr*>(&at), sizeof at) == 0);
  check(::listen(listener_, 256) == 0);
  socklen_t size = sizeof at;
  check(::getsockname(listener_, reinterpret_cast<sockaddr*>(&at), &size) == 0);
  port_ = ntohs(at.sin_port);
}

HostileServer::~HostileServer() {
  end();
  ::close(listener_);
}

std::string HostileServer::url() {
  const uint32_t n = urls_given_++;
  return cat("http://127.", n >> 14 & 127, ".", n >> 7 & 127, ".", 1 + (n & 127), ":", port_);
}

void HostileServer::begin() {
  objects_.clear();
  sessions_.clear();
  uploads_.clear();
  next_generation_ = 1000;
}

void HostileServer::end() {
  accept_all();
  for (const std::unique_ptr<Connection>& connection : connections_) close(*connection, true);
  connections_.clear();
}

void HostileServer::put(const std::string& name, std::string bytes) {
  objects_[name] = {.bytes = std::move(bytes), .generation = next_generation_++};
}

// ── Sockets ──────────────────────────────────────────────────────────────────────────────────

void HostileServer::accept_all() {
  while (true) {
    const int descriptor = ::accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (descriptor < 0) return;
    const int on = 1;
    ::setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    connections_.push_back(std::make_unique<Connection>());
    connections_.back()->descriptor = descriptor;
  }
}

void HostileServer::serve(std::chrono::milliseconds wait) {
  std::vector<pollfd> polled = {{.fd = listener_, .events = POLLIN, .revents = 0}};
  for (const std::unique_ptr<Connection>& connection : connections_) {
    const auto events = static_cast<short>(connection->out.empty() ? POLLIN : POLLIN | POLLOUT);
    polled.push_back({.fd = connection->descriptor, .events = events, .revents = 0});
  }
  if (::poll(polled.data(), polled.size(), static_cast<int>(wait.count())) <= 0) return;
  const size_t polled_count = connections_.size();
  for (size_t i = 0; i < polled_count; ++i) {
    Connection& connection = *connections_[i];
    if ((polled[i + 1].revents & POLLOUT) != 0) flush(connection);
    if ((polled[i + 1].revents & ~POLLOUT) != 0) receive(connection);
  }
  std::erase_if(connections_, [](const auto& connection) { return connection->descriptor < 0; });
  if (polled[0].revents != 0) accept_all();
}

void HostileServer::receive(Connection& connection) {
  std::array<char, 65536> bytes;
  while (connection.descriptor >= 0) {
    const ssize_t got = ::recv(connection.descriptor, bytes.data(), bytes.size(), 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) break;
    if (got <= 0) {
      close(connection, false);
      return;
    }
    connection.in.append(bytes.data(), static_cast<size_t>(got));
  }
  Request request;
  while (connection.descriptor >= 0 && !connection.silent && !connection.close_when_sent &&
         take_request(connection, request)) {
    answer(connection, request);
  }
}

void HostileServer::flush(Connection& connection) {
  while (connection.descriptor >= 0 && !connection.out.empty()) {
    const ssize_t sent =
        ::send(connection.descriptor, connection.out.data(), connection.out.size(), MSG_NOSIGNAL);
    if (sent < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (sent < 0) {
      close(connection, false);
      return;
    }
    connection.out.erase(0, static_cast<size_t>(sent));
  }
  if (connection.close_when_sent) close(connection, false);
}

void HostileServer::close(Connection& connection, bool reset) {
  if (connection.descriptor < 0) return;
  if (reset) {
    const linger now{.l_onoff = 1, .l_linger = 0};
    ::setsockopt(connection.descriptor, SOL_SOCKET, SO_LINGER, &now, sizeof now);
  }
  ::close(connection.descriptor);
  connection.descriptor = -1;
}

bool HostileServer::take_request(Connection& connection, Request& request) {
  const std::string_view in = connection.in;
  const size_t head_end = in.find("\r\n\r\n");
  if (head_end == in.npos) return false;
  request = {};
  std::string_view head = in.substr(0, head_end + 2);
  // The client's own words are checked, too: nothing of a script's may have got into its lines.
  const size_t first_end = head.find("\r\n");
  const std::string_view first = head.substr(0, first_end);
  check(std::ranges::count(first, ' ') == 2 && first.ends_with(" HTTP/1.1"));
  const size_t space = first.find(' ');
  request.method = first.substr(0, space);
  request.target = first.substr(space + 1, first.size() - space - 10);
  for (head.remove_prefix(first_end + 2); !head.empty();) {
    const size_t line_end = head.find("\r\n");
    const std::string_view line = head.substr(0, line_end);
    const size_t colon = line.find(": ");
    check(colon != line.npos && line.find_first_of(std::string_view("\r\n\0", 3)) == line.npos);
    std::string name(line.substr(0, colon));
    for (char& c : name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    check(request.headers.emplace(std::move(name), line.substr(colon + 2)).second);
    head.remove_prefix(line_end + 2);
  }
  const uint64_t body_bytes =
      request.headers.contains("content-length") ? number_of(request.headers["content-length"]) : 0;
  if (in.size() - head_end - 4 < body_bytes) return false;
  request.body = in.substr(head_end + 4, body_bytes);
  const size_t mark = std::min(request.target.find('?'), request.target.size());
  request.path = request.target.substr(0, mark);
  std::string_view query = std::string_view(request.target).substr(mark);
  while (!query.empty()) {
    query.remove_prefix(1);
    const size_t and_at = std::min(query.find('&'), query.size());
    const std::string_view pair = query.substr(0, and_at);
    const size_t equals = std::min(pair.find('='), pair.size());
    request.query[std::string(pair.substr(0, equals))] =
        decoded(pair.substr(std::min(equals + 1, pair.size())));
    query.remove_prefix(and_at);
  }
  connection.in.erase(0, head_end + 4 + body_bytes);
  return true;
}

// ── Lies ─────────────────────────────────────────────────────────────────────────────────────

void HostileServer::answer(Connection& connection, const Request& request) {
  switch (script_->byte() % 8) {
    case 4:
    case 5: send(connection, request, right_answer(request), true); return;
    case 6: {
      constexpr std::array<int, 16> kStatuses = {404, 503, 412, 416, 429, 401, 500, 403,
                                                 308, 302, 304, 204, 206, 200, 100, 408};
      Response response{.status = kStatuses[script_->byte() % kStatuses.size()]};
      response.body = script_->text();
      for (int i = script_->byte() % 4; i > 0; --i) {
        constexpr std::array<const char*, 8> kNames = {
            "Content-Range", "Retry-After", "Location",          "Range",
            "ETag",          "x-goog-hash", "x-goog-generation", "Connection"};
        const char* name = kNames[script_->byte() % kNames.size()];
        response.headers.emplace_back(name, script_->text());
      }
      send(connection, request, std::move(response), (script_->byte() & 1) != 0);
      return;
    }
    case 7: {
      switch (script_->byte() % 4) {
        case 0: close(connection, false); return;
        case 1: close(connection, true); return;
        case 2: connection.silent = true; return;
        default: break;
      }
      // Bytes as they are.
      while (!script_->exhausted()) {
        const std::string some = script_->text();
        connection.out += some;
        if (some.size() < 255) break;
      }
      connection.close_when_sent = (script_->byte() & 1) == 0;
      flush(connection);
      return;
    }
    default: send(connection, request, right_answer(request), false);
  }
}

void HostileServer::lie_about_media(const Request& request, Response& response) {
  const auto set = [&](std::string_view name, std::string value) {
    std::erase_if(response.headers, [&](const auto& header) { return header.first == name; });
    response.headers.emplace_back(name, std::move(value));
  };
  const uint8_t lies = script_->byte();
  if ((lies & 1) != 0) {
    const std::string name = decoded(request.path.substr(request.path.rfind('/') + 1));
    if (const auto found = objects_.find(name); found != objects_.end()) {
      response.status = 200;
      response.body = found->second.bytes;
      set("Content-Range", "none");
    }
  }
  if ((lies & 2) != 0) {
    response.status = 206;
    const uint64_t begin = script_->odd_number(), end = script_->odd_number();
    const uint64_t total = script_->odd_number();
    set("Content-Range", cat("bytes ", begin, "-", end, "/", total));
    // Often a body that fits.
    if (end >= begin && end - begin < 16 * 1024 && (script_->byte() & 1) == 0) {
      response.body.assign(static_cast<size_t>(end - begin + 1), 'L');
    }
  }
  if ((lies & 4) != 0) set("Content-Range", script_->text());
  if ((lies & 8) != 0) set("x-goog-generation", script_->text());
  if ((lies & 16) != 0) set("x-goog-hash", cat("crc32c=", script_->text()));
  if ((lies & 32) != 0) {
    std::erase_if(response.headers,
                  [](const auto& header) { return header.first == "x-goog-hash"; });
  }
  if ((lies & 64) != 0) {
    const uint8_t which = script_->byte();
    if ((which & 1) != 0) set("x-goog-stored-content-encoding", "gzip");
    if ((which & 2) != 0) set("Content-Encoding", "gzip");
  }
  if ((lies & 128) != 0) {
    set("x-goog-stored-content-length", std::to_string(script_->odd_number()));
  }
}

void HostileServer::send(Connection& connection, const Request& request, Response response,
                         bool lie) {
  uint8_t lies = 0;
  if (lie) {
    if (response.is_media) lie_about_media(request, response);
    lies = script_->byte();
    if ((lies & 1) != 0) response.status = 100 + script_->short_number() % 500;
    if ((lies & 2) != 0) {
      const size_t at = std::min<size_t>(script_->short_number(), response.body.size());
      const size_t gone = std::min<size_t>(script_->byte(), response.body.size() - at);
      response.body.replace(at, gone, script_->text());
    }
    if ((lies & 4) != 0) response.body.resize(script_->short_number() % (32 * 1024), 'M');
    if ((lies & 64) != 0) response.headers.emplace_back("X", script_->text());
  }
  std::string out;
  if ((lies & 64) != 0 && (script_->byte() & 1) != 0) out += "HTTP/1.1 100 Continue\r\n\r\n";
  out += cat("HTTP/1.1 ", response.status, " X\r\n");
  for (const auto& [name, value] : response.headers) out += cat(name, ": ", value, "\r\n");
  const bool no_body = request.method == "HEAD" || response.status == 204 ||
                       response.status == 304 || response.status / 100 == 1;
  if ((lies & 16) != 0) {
    out += "Transfer-Encoding: chunked\r\n\r\n";
    std::string_view left = response.body;
    while (!left.empty()) {
      const size_t asked = script_->short_number() % 8192;
      const size_t size = asked == 0 ? left.size() : std::min(asked, left.size());
      std::array<char, 16> digits{};
      const auto end = std::to_chars(digits.begin(), digits.end(), size, 16).ptr;
      out.append(digits.begin(), end).append("\r\n").append(left.substr(0, size)).append("\r\n");
      left.remove_prefix(size);
    }
    out += "0\r\n\r\n";
  } else {
    uint64_t length = response.body.size();
    if ((lies & 8) != 0) length = script_->odd_number();
    if ((lies & 32) == 0) out += cat("Content-Length: ", length, "\r\n");
    out += "\r\n";
    if (!no_body || lie) out += response.body;
    connection.close_when_sent = (lies & (8 | 32)) != 0;
  }
  if ((lies & 128) != 0) {
    const size_t sent = script_->short_number();
    if (sent < out.size()) {
      out.resize(sent);
      connection.close_when_sent = true;
    } else {
      out += script_->text();
    }
  }
  for (char& c : out) c = c == '\0' ? '\1' : c == kNeverSent ? '\xEF' : c;
  connection.out += out;
  flush(connection);
}

// ── The truth ────────────────────────────────────────────────────────────────────────────────

HostileServer::Response HostileServer::right_answer(const Request& request) {
  constexpr std::string_view kMedia = "/download/storage/v1/b/bucket/o/";
  constexpr std::string_view kJson = "/storage/v1/b/bucket/o";
  if (request.path.starts_with(kMedia)) {
    const auto found = objects_.find(decoded(std::string_view(request.path).substr(kMedia.size())));
    return found == objects_.end() ? Response{.status = 404} : media(found->second, request);
  }
  if (request.path.starts_with("/upload/")) return upload(request);
  if (sessions_.contains(request.path)) return upload(request);
  if (request.path.starts_with(kJson)) {
    return json_api(request, std::string_view(request.path).substr(kJson.size()));
  }
  return xml_api(request);
}

HostileServer::Response HostileServer::media(const Object& object, const Request& request) const {
  Response response{.is_media = true};
  std::string_view bytes = object.bytes;
  if (const auto range = request.headers.find("range"); range != request.headers.end()) {
    const std::string_view text = std::string_view(range->second).substr(6);  // "bytes="
    const size_t dash = text.find('-');
    const uint64_t first = number_of(text);
    const std::string_view last_text = text.substr(dash + 1);
    if (first >= bytes.size()) {
      return {.status = 416, .headers = {{"Content-Range", cat("bytes */", bytes.size())}}};
    }
    const uint64_t last = last_text.empty()
                              ? bytes.size() - 1
                              : std::min<uint64_t>(number_of(last_text), bytes.size() - 1);
    check(first <= last);
    response.status = 206;
    response.headers.emplace_back("Content-Range",
                                  cat("bytes ", first, "-", last, "/", bytes.size()));
    bytes = bytes.substr(first, last - first + 1);
  }
  response.headers.emplace_back("x-goog-generation", std::to_string(object.generation));
  response.headers.emplace_back("x-goog-hash", cat("crc32c=", sum_of(object.bytes)));
  response.headers.emplace_back("x-goog-stored-content-length",
                                std::to_string(object.bytes.size()));
  response.body = bytes;
  return response;
}

HostileServer::Response HostileServer::of(const std::string& name) {
  const auto found = objects_.find(name);
  if (found == objects_.end()) return {.status = 404};
  return {.body = resource(name, found->second)};
}

HostileServer::Response HostileServer::store(const std::string& name, std::string bytes) {
  put(name, std::move(bytes));
  return of(name);
}

HostileServer::Response HostileServer::list(const Request& request) const {
  const auto value = [&](const char* name) {
    const auto found = request.query.find(name);
    return found == request.query.end() ? std::string() : found->second;
  };
  const std::string prefix = value("prefix"), end = value("endOffset");
  const std::string from = std::max(value("startOffset"), value("pageToken"));
  constexpr int kPageSize = 5;
  std::string items, next;
  int count = 0;
  for (const auto& [name, object] : objects_) {
    if (name < from || !name.starts_with(prefix) || (!end.empty() && name >= end)) continue;
    if (count++ == kPageSize) {
      next = cat(",\"nextPageToken\":", json_quote(name));
      break;
    }
    items += cat(items.empty() ? "" : ",", resource(name, object));
  }
  return {.body = cat("{\"items\":[", items, "]", next, "}")};
}

HostileServer::Response HostileServer::json_api(const Request& request, std::string_view path) {
  if (path.empty()) return list(request);
  path.remove_prefix(1);
  const size_t slash = std::min(path.find('/'), path.size());
  const std::string name = decoded(path.substr(0, slash));
  const std::string_view rest = path.substr(slash);
  if (rest == "/compose") {
    simdjson::dom::parser parser;
    std::string joined;
    simdjson::dom::array sources;
    // Also that the client's JSON is JSON, whatever names and generations it was told.
    check(parser.parse(request.body)["sourceObjects"].get(sources) == simdjson::SUCCESS);
    for (const simdjson::dom::element source : sources) {
      std::string_view source_name;
      check(source["name"].get(source_name) == simdjson::SUCCESS);
      const auto found = objects_.find(std::string(source_name));
      if (found == objects_.end()) return {.status = 404};
      joined += found->second.bytes;
    }
    return store(name, std::move(joined));
  }
  constexpr std::string_view kRewrite = "/rewriteTo/b/bucket/o/";
  if (rest.starts_with(kRewrite)) {
    const auto found = objects_.find(name);
    if (found == objects_.end()) return {.status = 404};
    Response made = store(decoded(rest.substr(kRewrite.size())), found->second.bytes);
    made.body = cat("{\"done\":true,\"resource\":", made.body, "}");
    return made;
  }
  if (request.method == "DELETE") return {.status = objects_.erase(name) == 1 ? 204 : 404};
  return of(name);
}

HostileServer::Response HostileServer::upload(const Request& request) {
  if (const auto found = sessions_.find(request.path); found != sessions_.end()) {
    Session& session = found->second;
    if (request.method == "DELETE") {
      sessions_.erase(found);
      return {.status = 499};
    }
    const std::string_view range =
        request.headers.at("content-range");  // "bytes 0-9/10", "bytes */10"
    const std::string_view total = range.substr(range.find('/') + 1);
    session.bytes += request.body;
    if (total != "*" && number_of(total) == session.bytes.size()) {
      return store(session.name, session.bytes);
    }
    Response more{.status = 308};
    if (!session.bytes.empty()) {
      more.headers.emplace_back("Range", cat("bytes=0-", session.bytes.size() - 1));
    }
    return more;
  }
  simdjson::dom::parser parser;
  std::string_view json = request.body, bytes;
  if (request.query.contains("uploadType") && request.query.at("uploadType") == "multipart") {
    const size_t metadata = json.find("\r\n\r\n") + 4;
    const std::string_view boundary = json.substr(0, json.find("\r\n"));
    const size_t metadata_end = json.find(cat("\r\n", boundary), metadata);
    const size_t begin = json.find("\r\n\r\n", metadata_end) + 4;
    const size_t end = json.size() - boundary.size() - 6;  // CR LF before it; "--" CR LF behind it
    check(metadata_end != json.npos && begin <= end);
    bytes = json.substr(begin, end - begin);
    json = json.substr(metadata, metadata_end - metadata);
  }
  std::string_view name;
  check(parser.parse(json.data(), json.size())["name"].get(name) == simdjson::SUCCESS);
  if (request.query.at("uploadType") == "multipart") {
    return store(std::string(name), std::string(bytes));
  }
  const std::string path = cat("/session/", sessions_.size());
  sessions_[path] = {.name = std::string(name), .bytes = ""};
  return {.headers = {{"Location", cat("http://elsewhere", path)}}};
}

HostileServer::Response HostileServer::xml_api(const Request& request) {
  constexpr std::string_view kBucket = "/bucket";
  if (!request.path.starts_with(kBucket)) return {.status = 404};
  std::string_view path = std::string_view(request.path).substr(kBucket.size());
  if (path.empty()) {
    return {.body =
                "<ListMultipartUploadsResult><IsTruncated>false</IsTruncated><Upload><Key>a</Key>"
                "<UploadId>u</UploadId></Upload></ListMultipartUploadsResult>"};
  }
  const std::string name = decoded(path.substr(1));
  auto& parts = uploads_[name];
  if (request.query.contains("partNumber")) {
    parts[number_of(request.query.at("partNumber"))] = request.body;
    return {.headers = {{"ETag", "\"e\""}, {"x-goog-hash", cat("crc32c=", sum_of(request.body))}}};
  }
  if (request.query.contains("uploads")) {
    return {.body =
                "<InitiateMultipartUploadResult><UploadId>u</UploadId>"
                "</InitiateMultipartUploadResult>"};
  }
  if (request.method == "DELETE") return {.status = uploads_.erase(name) == 1 ? 204 : 404};
  std::string whole;
  for (const auto& [number, bytes] : parts) whole += bytes;
  put(name, std::move(whole));
  return {.body = "<CompleteMultipartUploadResult></CompleteMultipartUploadResult>"};
}

}  // namespace headrace::fuzz
