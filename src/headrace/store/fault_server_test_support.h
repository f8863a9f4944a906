// What tests of the upper layers share: a running headrace-faultserver, an engine, and short ways
// to read. The server's control API is in testing/faultserver/README.md.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/engine.h"
#include "headrace/store/transfer/credentials.h"

struct ssl_st;

namespace headrace {

// How long a test waits for what must come, on a machine however busy, before it fails.
inline constexpr std::chrono::seconds kPatience{100};

// The same for the same seed, different for others.
std::string some_bytes(size_t size, uint32_t seed = 1);

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

struct ServerOptions {
  std::string bind = "127.0.0.1";
  std::string certificate_file = {}, key_file = {};  // TLS where given
  uint16_t port = 0;                                 // 0: any
  std::string dialect = "gcs";                       // or "s3"
};

// A server process of the test's own. Control requests go over one connection that is opened at the
// start, so that they neither count nor suffer under rules about connections.
// Thread: confined.
class FaultServer {
 public:
  explicit FaultServer(const ServerOptions& options = {});
  ~FaultServer();
  FaultServer(const FaultServer&) = delete;
  FaultServer& operator=(const FaultServer&) = delete;

  const std::string& url() const { return url_; }
  uint16_t port() const { return port_; }

  void faults(std::string_view rules);  // a JSON list; replaces all rules
  void post(std::string_view path, std::string_view json);
  // Stores an object; `meta` as in the JSON API. Returns what a listing would tell of it.
  ObjectInfo put(std::string_view name, std::string_view bytes, std::string_view meta = "{}");
  // The same on a server of any dialect.
  void place(std::string_view name, std::string_view bytes, std::string_view meta = "{}");
  std::optional<std::string> object(std::string_view name);
  void
  reset();  // forgets rules, limits, tokens, counters and all objects; the bucket is empty then

  struct Entry {
    uint64_t n = 0, connection = 0, bytes_sent = 0;
    std::string method, target, kind, end;
    int status = 0;
    bool absolute_form = false;
    std::map<std::string, std::string> headers;
  };
  // The requests of these kinds, or all.
  std::vector<Entry> log(std::string_view kind = "");
  // A counter by its JSON pointer, "/by_kind/media"; 0 if there is none.
  uint64_t stat(std::string_view pointer);
  // Returns when stat(pointer) has reached `count`; the test fails after kPatience.
  void wait_for(std::string_view pointer, uint64_t count);

 private:
  struct Answer {
    int status = 0;
    std::string body;
  };
  Answer request(std::string_view method, std::string_view path, std::string_view body);
  void send_all(std::string_view bytes);
  size_t receive_some(std::span<char> into);

  pid_t pid_ = -1;
  int stdin_ = -1, stdout_ = -1, socket_ = -1;
  ssl_st* tls_ = nullptr;
  std::string url_;
  uint16_t port_ = 0;
};

inline constexpr std::string_view kBucket = "bucket";

// Keys that a server takes as long as it was told of none.
std::shared_ptr<Credentials> some_keys();

// Options for a test: the server's address, and waits that cost nothing.
StoreOptions options_for(const FaultServer& server);

// The target for an object as a listing tells it.
ReadTarget listed(const ObjectInfo& info);
// The target for an object that nothing is known of.
ReadTarget named(std::string_view name);

std::shared_ptr<ReadBatch> batch_of(std::span<const ReadTarget> targets);
// Waits until the batch is done; the test fails after kPatience.
void wait_for(ReadBatch& batch);
// Waits until all memory is back: the thread that finished a batch may be the last to let go.
void wait_until_all_is_given_back(BlockPool& pool);
// The bytes of a slot that is done, or its error.
Result<std::string> outcome(ReadBatch& batch, size_t index);
// All of it for one object.
Result<std::string> read(ObjectStore& store, const ReadTarget& target);

template <class T>
Result<T> take(const std::shared_ptr<Pending<T>>& pending) {
  return pending->take(MayBlock::on_this_thread());
}

// An S3 server, an engine with two I/O threads, and a store there.
class S3Test : public ::testing::Test {
 protected:
  S3Test();
  std::shared_ptr<ObjectStore> open(Engine& engine);
  std::shared_ptr<ObjectStore> open() { return open(engine_); }

  FaultServer server_{{.dialect = "s3"}};
  StoreOptions options_ = options_for(server_);
  Engine engine_{{.io_threads = 2, .memory_budget_bytes = 256 * kMiB}};
};

// A server and an engine with two I/O threads.
class StoreTest : public ::testing::Test {
 protected:
  std::shared_ptr<ObjectStore> open(const StoreOptions& options);
  std::shared_ptr<ObjectStore> open() { return open(options_); }
  static std::shared_ptr<ObjectStore> open_in(Engine& engine, const StoreOptions& options);

  FaultServer server_;
  StoreOptions options_ = options_for(server_);
  Engine engine_{{.io_threads = 2, .memory_budget_bytes = 256 * kMiB}};
};

// EXPECT_THAT(read(...), Gives(bytes)): as EXPECT_EQ, without printing the bytes.
MATCHER_P(Gives, bytes, "gives the right bytes") {
  if (!arg.has_value()) {
    *result_listener << "which is " << to_string(arg.error().code()) << ": "
                     << arg.error().to_string();
    return false;
  }
  const std::string_view wanted = bytes;
  if (*arg == wanted) return true;
  size_t at = 0;
  while (at < arg->size() && at < wanted.size() && (*arg)[at] == wanted[at]) ++at;
  *result_listener << "which are " << arg->size() << " bytes instead of " << wanted.size()
                   << ", different from byte " << at << " on";
  return false;
}

// EXPECT_THAT(result, FailsWith(Code::kCorrupt, HasSubstr("...")))
MATCHER_P2(FailsWith, code, text, "") {
  if (arg.has_value()) {
    *result_listener << "which succeeded";
    return false;
  }
  *result_listener << "which is " << to_string(arg.error().code()) << ": "
                   << arg.error().to_string();
  return arg.error().code() == code &&
         ::testing::ExplainMatchResult(text, arg.error().to_string(), result_listener);
}

}  // namespace headrace
