// TLS over a non-blocking socket, on OpenSSL directly.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "headrace/base/mutex.h"
#include "headrace/base/result.h"
#include "headrace/http/options.h"

struct ssl_ctx_st;
struct ssl_session_st;
struct ssl_st;

namespace headrace {

// Certificates and remembered sessions for one host. Only the newest session ticket is kept, since
// every connection brings new ones. Thread: any.
class TlsContext : public std::enable_shared_from_this<TlsContext> {
 public:
  // Errors: kInvalidArgument, with its name and what is wrong, for a file that cannot be used.
  static Result<std::shared_ptr<TlsContext>> create(const TlsOptions& options);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

 private:
  friend class TlsStream;
  TlsContext(ssl_ctx_st* context, std::string client_cert_file);
  static int on_new_session(ssl_st* ssl, ssl_session_st* session);

  ssl_ctx_st* context_;
  const std::string client_cert_file_;  // for messages
  Mutex mutex_;
  ssl_session_st* session_ HEADRACE_GUARDED_BY(mutex_) = nullptr;
};

// Where the records in a stream of TLS end, which their headers tell in the clear.
class RecordBorders {
 public:
  void pass(std::span<const std::byte> received);
  // At least this much is still to be received before `plain_bytes` more can be decrypted, if
  // whatever is whole has been.
  uint64_t missing_bytes(uint64_t plain_bytes) const;

 private:
  static constexpr size_t kHeaderBytes = 5;
  size_t header_bytes_ = 0;  // of the present record, received
  size_t body_bytes_ = 0;    // of the present record, whole
  size_t left_bytes_ = 0;    // of them, still to be received
};

// One TLS connection. Never waits: every call says how many bytes it moved, or what the socket must
// be ready for first. Asio's ssl::stream copies every byte once more and issues a read per 16 KiB
// record; here a record is decrypted from a 64 KiB read into the caller's memory.
// Thread: I/O. Borrows the socket.
class TlsStream {
 public:
  enum class Need { kNothing, kReadable, kWritable };
  struct Step {
    size_t count = 0;  // bytes moved
    Need need = Need::kNothing;
    bool end = false;        // the peer closed the connection ...
    bool truncated = false;  // ... without announcing it: a third party may have cut the connection
  };

  // `host` is checked against the certificate: a DNS name or an IP literal.
  static Result<std::unique_ptr<TlsStream>> create(std::shared_ptr<TlsContext> context,
                                                   int descriptor, const std::string& host);
  ~TlsStream();
  TlsStream(const TlsStream&) = delete;
  TlsStream& operator=(const TlsStream&) = delete;

  Result<Step> handshake();
  bool resumed() const;  // the handshake resumed an earlier session
  // Reads at most kMostReadBytes, because no thread can fork meanwhile.
  static constexpr size_t kMostReadBytes = 64 * 1024;
  Result<Step> read(std::span<std::byte> into);
  // The last read has left nothing, neither in the socket nor in OpenSSL's hands.
  bool drained() const;
  // The next read brings nothing but the end, or why there is nothing more.
  bool over() const { return over_; }
  // After a read that has not filled all of its memory: so much is at least still to come in the
  // socket before `plain_bytes` more can be read.
  uint64_t missing_bytes(uint64_t plain_bytes) const {
    return link_.borders.missing_bytes(plain_bytes);
  }
  // `more`: further bytes follow at once, so that the last segment need not go out by itself.
  Result<Step> write(std::span<const std::byte> bytes, bool more);

 private:
  // What OpenSSL reads from and writes to.
  struct Link {
    int descriptor = -1;
    bool empty = false;  // the last receive has brought less than it had room for
    bool more = false;
    RecordBorders borders;
  };
  friend struct LinkMethod;

  TlsStream(std::shared_ptr<TlsContext> context, ssl_st* ssl, int descriptor);
  Result<Step> classify(int result, const char* what);

  std::shared_ptr<TlsContext> context_;
  ssl_st* ssl_;
  Link link_;
  std::optional<Error> failed_;  // why nothing can be read any more
  bool over_ = false;
};

}  // namespace headrace
