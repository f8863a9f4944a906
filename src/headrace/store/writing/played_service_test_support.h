// A service that a test plays: no socket, no server, no thread, and a clock that jumps from timer
// to timer, so that whatever can happen to each request of a change is tried in milliseconds.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headrace/format/percent.h"
#include "headrace/http/answer_test_support.h"
#include "headrace/http/manual_clock_test_support.h"
#include "headrace/store/ais/ais_protocol.h"
#include "headrace/store/gcs/gcs_protocol.h"
#include "headrace/store/object_writer.h"
#include "headrace/store/s3/s3_protocol.h"
#include "headrace/store/transfer/remote_root.h"

namespace headrace {

struct PlayedRequest {
  std::string kind;  // "part", "compose" ...
  std::string method, target, headers, body;
};
struct PlayedAnswer {
  std::string status = "200 OK", headers = {}, body = {};
  std::optional<uint64_t> claimed_bytes = {};  // in place of the body's size
};

// What becomes of one request besides what the service does with it.
enum class Mishap : uint8_t {
  kNone,
  kRefused,    // 403
  kThrottled,  // 429
  kReset,      // it does not arrive
  kLost,       // it is carried out, and its answer does not arrive
  kSilent,     // it does not arrive, and no answer comes
};

// What is stored, and what has been begun and not ended.
class PlayedService {
 public:
  virtual ~PlayedService() = default;
  virtual std::string kind_of(const PlayedRequest& request) const = 0;
  virtual PlayedAnswer perform(const PlayedRequest& request) = 0;

  struct Object {
    std::string bytes;
    uint64_t generation = 0;
  };
  std::map<std::string, Object> objects;
  std::map<std::string, std::map<int, std::string>> uploads;  // parts by their numbers
  std::map<std::string, std::string> streams;

 protected:
  static std::string between(std::string_view text, std::string_view before,
                             std::string_view after) {
    const size_t begin = text.find(before);
    if (begin == std::string_view::npos) return "";
    const size_t from = begin + before.size();
    return std::string(text.substr(from, text.find(after, from) - from));
  }
  static std::string parameter(const PlayedRequest& request, std::string_view name) {
    const std::string found = between(request.target + "&", cat(name, "="), "&");
    return percent_decode(found).value_or("");
  }
  static bool has(const PlayedRequest& request, std::string_view text) {
    return request.target.contains(text);
  }
  static Crc32c sum(std::string_view bytes) {
    return Crc32c().extended(std::as_bytes(std::span(bytes.data(), bytes.size())));
  }
  Object& store(const std::string& name, std::string bytes) {
    Object& object = objects[name];
    object = {.bytes = std::move(bytes), .generation = ++generation_};
    return object;
  }
  std::string new_id() { return cat("id", ++generation_); }
  static std::string joined(const std::map<int, std::string>& parts) {
    std::string all;
    for (const auto& [number, bytes] : parts) all += bytes;
    return all;
  }

 private:
  uint64_t generation_ = 1000;
};

// The JSON API, and the XML API's multipart uploads.
class PlayedGcs final : public PlayedService {
 public:
  std::string kind_of(const PlayedRequest& request) const override {
    if (has(request, "uploadType=multipart")) return "write";
    if (has(request, "/compose?")) return "compose";
    if (has(request, "uploadType=resumable") || has(request, "?uploads")) return "start";
    if (has(request, "/session/")) return request.method == "PUT" ? "put" : "cancel";
    if (has(request, "partNumber=")) return "part";
    if (has(request, "uploadId=")) return request.method == "POST" ? "complete" : "abort";
    return request.method == "DELETE" ? "delete" : "stat";
  }
  PlayedAnswer perform(const PlayedRequest& request) override {
    const std::string kind = kind_of(request);
    if (kind == "write") {
      const std::string name = between(request.body, "\"name\":\"", "\"");
      if (!may_write(request, name)) return {.status = "412 Precondition Failed"};
      const std::string_view rest = std::string_view(request.body);
      const size_t begin = rest.find("\r\n\r\n", rest.find("\r\n\r\n") + 4) + 4;
      return told(name, store(name, std::string(rest.substr(begin, rest.rfind("\r\n--") - begin))));
    }
    if (kind == "compose") {
      const std::string name = name_in(request, "/o/", "/compose");
      if (!may_write(request, name)) return {.status = "412 Precondition Failed"};
      std::string all;
      for (size_t at = 0; (at = request.body.find("{\"name\":\"", at)) != std::string::npos;) {
        const std::string source =
            between(std::string_view(request.body).substr(at), "{\"name\":\"", "\"");
        if (!objects.contains(source)) return {.status = "404 Not Found"};
        all += objects[source].bytes;
        at += source.size();
      }
      return told(name, store(name, all));
    }
    if (kind == "start") {
      const std::string id = new_id();
      if (has(request, "?uploads")) {
        uploads[id];
        return {.body = cat("<InitiateMultipartUploadResult><UploadId>", id,
                            "</UploadId></InitiateMultipartUploadResult>")};
      }
      streams[id] = "";
      names_[id] = between(request.body, "\"name\":\"", "\"");
      return {.headers = cat("Location: http://storage.test/session/", id, "\r\n")};
    }
    if (kind == "put") return take_piece(request);
    if (kind == "cancel") {
      streams.erase(request.target.substr(request.target.rfind('/') + 1));
      return {.status = "499 Cancelled"};
    }
    const std::string id = parameter(request, "uploadId");
    if (kind == "part") {
      if (!uploads.contains(id)) return {.status = "404 Not Found"};
      uploads[id][std::stoi(parameter(request, "partNumber"))] = request.body;
      return {.headers = cat("ETag: \"p\"\r\nx-goog-hash: crc32c=", sum(request.body).to_base64(),
                             "\r\n")};
    }
    if (kind == "complete") {
      if (!uploads.contains(id)) return {.status = "404 Not Found"};
      const Object& made = store(name_in(request, "/bucket/", "?"), joined(uploads[id]));
      uploads.erase(id);
      return {.headers = cat("x-goog-generation: ", made.generation,
                             "\r\nx-goog-hash: crc32c=", sum(made.bytes).to_base64(), "\r\n"),
              .body =
                  "<CompleteMultipartUploadResult><ETag>\"e\"</ETag>"
                  "</CompleteMultipartUploadResult>"};
    }
    if (kind == "abort") {
      if (uploads.erase(id) == 0) return {.status = "404 Not Found"};
      return {.status = "204 No Content"};
    }
    const std::string name = name_in(request, "/o/", "?");
    if (!objects.contains(name)) return {.status = "404 Not Found"};
    if (kind == "stat") return told(name, objects[name]);
    if (has(request, "ifGenerationMatch=") &&
        parameter(request, "ifGenerationMatch") != std::to_string(objects[name].generation)) {
      return {.status = "412 Precondition Failed"};
    }
    objects.erase(name);
    return {.status = "204 No Content"};
  }

 private:
  static std::string name_in(const PlayedRequest& request, std::string_view before,
                             std::string_view after) {
    return percent_decode(between(request.target, before, after)).value_or("");
  }
  bool may_write(const PlayedRequest& request, const std::string& name) {
    if (!has(request, "ifGenerationMatch=")) return true;
    const std::string wanted = parameter(request, "ifGenerationMatch");
    return objects.contains(name) ? wanted == std::to_string(objects[name].generation)
                                  : wanted == "0";
  }
  static PlayedAnswer told(const std::string& name, const Object& object) {
    return {.headers = "Content-Type: application/json\r\n",
            .body = cat("{\"name\":\"", name, "\",\"generation\":\"", object.generation,
                        "\",\"size\":\"", object.bytes.size(), "\",\"crc32c\":\"",
                        sum(object.bytes).to_base64(), "\"}")};
  }
  PlayedAnswer take_piece(const PlayedRequest& request) {
    const std::string id = request.target.substr(request.target.rfind('/') + 1);
    if (!streams.contains(id)) {
      // It has ended, and tells what it has made.
      return objects.contains(names_[id]) ? told(names_[id], objects[names_[id]])
                                          : PlayedAnswer{.status = "404 Not Found"};
    }
    std::string& stream = streams[id];
    const std::string range = between(request.headers, "Content-Range: bytes ", "\r\n");
    const std::string total = range.substr(range.find('/') + 1);
    if (range[0] != '*' && std::stoull(range) == stream.size()) stream += request.body;
    if (total == std::to_string(stream.size())) {
      const Object& made = store(names_[id], stream);
      streams.erase(id);
      return told(names_[id], made);
    }
    return {.status = "308 Resume Incomplete",
            .headers = stream.empty() ? "" : cat("Range: bytes=0-", stream.size() - 1, "\r\n")};
  }
  std::map<std::string, std::string> names_;  // by session
};

class PlayedS3 final : public PlayedService {
 public:
  std::string kind_of(const PlayedRequest& request) const override {
    if (has(request, "?uploads=")) return "start";
    const bool copies = request.headers.contains("x-amz-copy-source: ");
    if (has(request, "partNumber=")) return copies ? "copy_part" : "part";
    if (has(request, "uploadId=")) return request.method == "POST" ? "complete" : "abort";
    if (request.method == "PUT") return copies ? "copy" : "write";
    if (request.method == "DELETE") return "delete";
    return request.method == "HEAD" ? "stat" : "read";
  }
  PlayedAnswer perform(const PlayedRequest& request) override {
    const std::string kind = kind_of(request);
    const std::string name =
        percent_decode(between(request.target + "?", "/bucket/", "?")).value_or("");
    const std::string id = parameter(request, "uploadId");
    if (kind == "start") {
      const std::string made = new_id();
      uploads[made];
      return {.headers = announces_sums ? "x-amz-checksum-algorithm: CRC32C\r\n"
                                          "x-amz-checksum-type: FULL_OBJECT\r\n"
                                        : "",
              .body = cat("<InitiateMultipartUploadResult><UploadId>", made,
                          "</UploadId></InitiateMultipartUploadResult>")};
    }
    if (!id.empty() && !uploads.contains(id)) {
      return {.status = "404 Not Found",
              .body = "<Error><Code>NoSuchUpload</Code><Message>none</Message></Error>"};
    }
    if (kind == "part") {
      uploads[id][std::stoi(parameter(request, "partNumber"))] = request.body;
      return {.headers = cat(
                  "ETag: \"p\"\r\nx-amz-checksum-crc32c: ", sum(request.body).to_base64(), "\r\n")};
    }
    if (kind == "copy_part") {
      const std::string range = between(request.headers, "copy-source-range: bytes=", "\r\n");
      const uint64_t begin = std::stoull(range);
      const uint64_t end = std::stoull(range.substr(range.find('-') + 1)) + 1;
      uploads[id][std::stoi(parameter(request, "partNumber"))] =
          objects["in"].bytes.substr(begin, end - begin);
      return {.body = "<CopyPartResult><ETag>\"p\"</ETag></CopyPartResult>"};
    }
    if (kind == "complete") {
      const Object& made = store(name, joined(uploads[id]));
      uploads.erase(id);
      return {.body = cat("<CompleteMultipartUploadResult><ETag>\"", made.generation,
                          "\"</ETag><ChecksumCRC32C>", sum(made.bytes).to_base64(),
                          "</ChecksumCRC32C><ChecksumType>FULL_OBJECT</ChecksumType>"
                          "</CompleteMultipartUploadResult>")};
    }
    if (kind == "abort") {
      uploads.erase(id);
      return {.status = "204 No Content"};
    }
    if (kind == "write") {
      const Object& made = store(name, request.body);
      return {.headers = cat("ETag: \"", made.generation,
                             "\"\r\nx-amz-checksum-crc32c: ", sum(made.bytes).to_base64(), "\r\n")};
    }
    if (kind == "delete") {
      objects.erase(name);
      return {.status = "204 No Content"};
    }
    if (!objects.contains(name)) return {.status = "404 Not Found"};
    const Object& found = objects[name];
    return {.headers = cat("ETag: \"", found.generation,
                           "\"\r\nx-amz-checksum-crc32c: ", sum(found.bytes).to_base64(),
                           "\r\nx-amz-checksum-type: FULL_OBJECT\r\n"),
            .body = found.bytes};
  }

  bool announces_sums = true;
};

// A cluster of one target, at the address of the proxy.
class PlayedAis final : public PlayedService {
 public:
  std::string kind_of(const PlayedRequest& request) const override {
    if (has(request, "what=smap")) return "map";
    if (has(request, "append_type=append")) return "append";
    if (has(request, "append_type=flush")) return "flush";
    if (has(request, "partNumber=")) return "part";
    if (request.body.contains("mpt-upload")) return "start";
    if (request.body.contains("mpt-complete")) return "complete";
    if (request.body.contains("rename-obj")) return "rename";
    if (has(request, "uploadId=")) return "abort";
    if (request.method == "PATCH") return "describe";
    if (request.method == "DELETE") return "delete";
    if (request.method == "GET") return "read";
    return request.method == "HEAD" ? "stat" : "write";
  }
  PlayedAnswer perform(const PlayedRequest& request) override {
    const std::string kind = kind_of(request);
    const std::string name =
        percent_decode(between(request.target + "?", "/v1/objects/bucket/", "?")).value_or("");
    const std::string id = parameter(request, "uploadId");
    if (kind == "map") return {.body = map()};
    if (kind == "start") {
      if (!has_multipart) {
        return {.status = "400 Bad Request",
                .headers = "Content-Type: application/json\r\n",
                .body = R"({"status":400,"message":"invalid action \"mpt-upload\""})"};
      }
      const std::string made = new_id();
      uploads[made];
      return {.headers = "Content-Type: text/plain\r\n", .body = made};
    }
    if (!id.empty() && !uploads.contains(id)) return {.status = "404 Not Found"};
    if (kind == "part") {
      uploads[id][std::stoi(parameter(request, "partNumber"))] = request.body;
      return {};
    }
    if (kind == "complete") {
      store(name, joined(uploads[id]));
      uploads.erase(id);
      return {};
    }
    if (kind == "abort") {
      uploads.erase(id);
      return {};
    }
    const std::string handle = parameter(request, "append_handle");
    if (kind == "append") {
      const std::string made = handle.empty() ? new_id() : handle;
      if (!handle.empty() && !streams.contains(handle)) return {.status = "404 Not Found"};
      streams[made] += request.body;
      return {.headers = cat("ais-append-handle: ", made, "\r\n")};
    }
    if (kind == "flush") {
      if (!streams.contains(handle)) return {.status = "404 Not Found"};
      store(name, streams[handle]);
      streams.erase(handle);
      return {};
    }
    if (kind == "write") {
      const Object& made = store(name, request.body);
      return told(made);
    }
    if (!objects.contains(name)) return {.status = "404 Not Found"};
    if (kind == "rename") {
      const std::string to = between(request.body, "\"name\":\"", "\"");
      store(to, objects[name].bytes);
      objects.erase(name);
      return {};
    }
    if (kind == "delete") objects.erase(name);
    if (kind == "stat" || kind == "read") {
      const std::string& bytes = objects[name].bytes;
      PlayedAnswer answer = told(objects[name]);
      answer.body = bytes;
      if (kind == "stat") answer.claimed_bytes = claimed_bytes;
      const std::string range = between(request.headers, "Range: bytes=", "\r\n");
      if (!range.empty()) {
        const uint64_t begin = std::stoull(range);
        const uint64_t last = std::stoull(range.substr(range.find('-') + 1));
        answer.status = "206 Partial Content";
        answer.headers += cat("Content-Range: bytes ", range, "/", bytes.size(), "\r\n");
        answer.body = bytes.substr(begin, last + 1 - begin);
      }
      return answer;
    }
    return {};
  }

  bool has_multipart = true;
  std::optional<uint64_t> claimed_bytes = {};  // by the answer to a look

 private:
  static PlayedAnswer told(const Object& object) {
    return {.headers = cat("ais-version: ", object.generation,
                           "\r\nais-checksum-type: crc32c\r\nais-checksum-value: ",
                           to_hex(Checksum(sum(object.bytes))), "\r\n")};
  }
  static std::string node(std::string_view id) {
    return cat("{\"public_net\":{\"direct_url\":\"http://storage.test\"},\"daemon_id\":\"", id,
               "\",\"flags\":0}");
  }
  static std::string map() {
    return cat("{\"pmap\":{\"p1\":", node("p1"), "},\"proxy_si\":", node("p1"),
               ",\"tmap\":{\"t1\":", node("t1"), "},\"uuid\":\"u1\",\"version\":\"9\"}");
  }
};

// Two I/O threads of an engine, which the test runs, and a store at such a service.
class PlayedServiceTest : public ::testing::Test {
 protected:
  // Of each request, by its number, before anything else happens to it.
  std::function<Mishap(size_t number, const PlayedRequest& request)> mishap =
      [](size_t, const PlayedRequest&) { return Mishap::kNone; };
  std::vector<std::string> kinds;  // of the requests so far
  std::vector<uint32_t> threads;   // that have sent them

  ~PlayedServiceTest() override { end(); }

  template <class Service>
  Service& begin(std::string_view url, StoreOptions options = {}) {
    end();
    kinds.clear();
    threads.clear();
    auto service = std::make_unique<Service>();
    Service& played = *service;
    service_ = std::move(service);
    engine_ = std::make_shared<EngineResources>();
    engine_->gate = std::make_shared<Gate>();
    engine_->pool = BlockPool::create(64 * kMiB);
    engine_->writers = std::make_shared<WriterRegistry>();
    engine_->log = std::make_shared<Log>();
    engine_->compute = std::make_shared<ThreadPool>(1);
    auto route = std::make_shared<Route>();
    route->endpoint.host = "storage.test";
    host_ = std::make_shared<Host>(route, 64, 64, 500, engine_->log,
                                   [this](IoThread& thread, const std::shared_ptr<const Route>&) {
                                     return std::make_unique<Line>(*this, thread);
                                   });
    for (uint32_t i = 0; i < 2; ++i) {
      engine_->io_threads.push_back(IoThread::without_thread(i, clock_));
      host_->lanes.push_back(
          std::make_unique<HostLane>(*host_, *engine_->io_threads[i], resolver_, *engine_->pool));
    }
    options.endpoint = "http://storage.test";
    options.hedge = false;
    const Url parsed = parse_url(url).value();
    Result<Provider> provider = parsed.scheme == Scheme::kGs   ? gcs_provider(parsed, options)
                                : parsed.scheme == Scheme::kS3 ? s3_provider(parsed, options)
                                                               : ais_provider(parsed, options);
    EXPECT_TRUE(provider.has_value()) << provider.error().to_string();
    remote_ = std::make_shared<RemoteRoot>(
        engine_, host_, host_->paces.of(std::string(url)), provider->protocol_at(Root()), options,
        [this](const Endpoint&) -> Result<std::shared_ptr<Host>> { return host_; }, nullptr);
    return played;
  }
  PlayedService& service() { return *service_; }

  // As at the end of the engine: nothing new begins, and what is in progress ends.
  void stop() {
    engine_->gate->close();
    for (const auto& thread : engine_->io_threads) thread->stop_all();
  }
  bool is_idle() {
    return engine_->gate->wait_empty(std::chrono::steady_clock::time_point(),
                                     MayBlock::on_this_thread());
  }
  // Runs what can run, without moving the clock.
  void poll() {
    for (bool is_done = false; !is_done;) {
      is_done = true;
      for (const auto& thread : engine_->io_threads) {
        thread->context().restart();
        try {
          if (thread->context().poll() > 0) is_done = false;
        } catch (const std::bad_alloc&) {  // an I/O thread goes on, too
          is_done = false;
        }
      }
    }
  }
  // Until `done`, however late that is on the clock.
  void run_until(const std::function<bool()>& done) {
    for (int i = 0; i < 100'000; ++i) {
      poll();
      if (done()) return;
      if (!clock_.advance_to_next()) break;
    }
    FAIL() << "it does not end";
  }

  ManualClock clock_;
  std::shared_ptr<EngineResources> engine_;
  std::shared_ptr<RemoteRoot> remote_;

 private:
  class Line final : public Transport {
   public:
    Line(PlayedServiceTest& test, IoThread& thread)
        : test_(test), thread_(thread), silence_(thread.context()) {}
    awaitable<Result<void>> open(Activity&, Resolver&) override {
      reusable_ = true;
      co_return Result<void>();
    }
    awaitable<Result<void>> exchange(const HttpRequest& request, ResponseSink& sink) override {
      reusable_ = false;
      request_ = &request;
      PlayedRequest played{.kind = {},
                           .method = std::string(request.method),
                           .target = request.target,
                           .headers = request.header_lines,
                           .body = {}};
      for (const std::span<const std::byte> part : request.body) {
        played.body.append(reinterpret_cast<const char*>(part.data()), part.size());
      }
      if (request.body_begun != nullptr) *request.body_begun = true;
      played.kind = test_.service_->kind_of(played);
      test_.kinds.push_back(played.kind);
      test_.threads.push_back(thread_.index());
      sent_at_ = thread_.now();
      const Mishap what = test_.mishap(test_.kinds.size(), played);
      PlayedAnswer answer;
      switch (what) {
        case Mishap::kNone:
        case Mishap::kLost: answer = test_.service_->perform(played); break;
        case Mishap::kRefused: answer = {.status = "403 Forbidden"}; break;
        case Mishap::kThrottled: answer = {.status = "429 Too Many Requests"}; break;
        case Mishap::kReset: break;
        case Mishap::kSilent:
          waiting_ = true;
          silence_.expires_at(std::chrono::steady_clock::time_point::max());
          co_await silence_.async_wait(kAwait);
          waiting_ = false;
          co_return std::unexpected(*aborted_);
      }
      if (what == Mishap::kReset || what == Mishap::kLost) {
        co_return fail(Code::kUnavailable, "the connection broke");
      }
      Result<void> taken = give_head(sink, answer.status, answer.headers,
                                     answer.claimed_bytes.value_or(answer.body.size()));
      if (taken && request.method != "HEAD") taken = give_body(sink, answer.body);
      if (!taken) co_return taken;
      last_used_ = thread_.now();
      reusable_ = true;
      co_return Result<void>();
    }
    void abort(const Error& why) override {
      if (!aborted_) aborted_ = why;
      silence_.cancel();
    }
    void check_stall(TimePoint now) override {
      if (waiting_ && now - sent_at_ > std::chrono::seconds(30)) {
        abort(Error(Code::kUnavailable, "no answer came"));
      }
    }
    bool waits_for_answer() const override { return waiting_; }
    bool has_unread() override { return false; }
    void let_go() override {}
    bool still_silent(bool) override { return true; }

   private:
    PlayedServiceTest& test_;
    IoThread& thread_;
    Timer silence_;
    std::optional<Error> aborted_;
    bool waiting_ = false;
  };

  void end() {
    if (engine_ == nullptr) return;
    stop();
    for (int i = 0; i < 10'000 && !is_idle(); ++i) {
      poll();
      clock_.advance_to_next();
    }
    EXPECT_TRUE(is_idle()) << "something does not end with the engine";
    poll();
    engine_->compute->stop();
    remote_.reset();
    for (const auto& lane : host_->lanes) lane->close();
    poll();
    host_->lanes.clear();
    poll();
    host_.reset();
    engine_.reset();
  }

  Resolver resolver_;
  std::unique_ptr<PlayedService> service_;
  std::shared_ptr<Host> host_;
};

}  // namespace headrace
