// TLS over a non-blocking socket, on OpenSSL directly.
#pragma once

#include <memory>
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
  Result<Step> write(std::span<const std::byte> bytes);

 private:
  TlsStream(std::shared_ptr<TlsContext> context, ssl_st* ssl);
  Result<Step> classify(int result, const char* what);

  std::shared_ptr<TlsContext> context_;
  ssl_st* ssl_;
};

}  // namespace headrace
