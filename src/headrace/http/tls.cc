#include "headrace/http/tls.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "headrace/base/fork.h"

// OpenSSL's objects share locks of the whole process (of its tables of algorithms, of reference
// counts, of random numbers). A child that is forked while another thread has one waits for it for
// ever, so each function here that calls OpenSSL holds forks off.
namespace headrace {
namespace {

constexpr size_t kReadBufferBytes = 64 * 1024;

int context_index() {
  static const int index = SSL_CTX_get_ex_new_index(0, nullptr, nullptr, nullptr, nullptr);
  return index;
}

std::string openssl_errors() {
  std::string text;
  while (const auto error = ERR_get_error()) {
    std::array<char, 256> line{};
    ERR_error_string_n(error, line.data(), line.size());
    if (!text.empty()) text += "; ";
    text += line.data();
  }
  return text;
}

// A wheel's OpenSSL was configured for a different distribution than it may run on.
constexpr std::array<const char*, 5> kUsualBundles = {
    "/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem", "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem"};

bool load_roots(SSL_CTX* context, const TlsOptions& options, std::string& failure) {
  const char* variable = std::getenv("SSL_CERT_FILE");
  const std::string file =
      !options.ca_file.empty() ? options.ca_file : std::string(variable ? variable : "");
  if (!file.empty()) {
    if (SSL_CTX_load_verify_locations(context, file.c_str(), nullptr) == 1) return true;
    failure = cat("cannot read CA certificates from ", file, ": ", openssl_errors());
    return false;
  }
  SSL_CTX_set_default_verify_paths(context);
  for (const char* bundle : kUsualBundles) {
    if (::access(bundle, R_OK) == 0) {
      SSL_CTX_load_verify_locations(context, bundle, nullptr);
      break;
    }
  }
  ERR_clear_error();
  return true;
}

// Nobody is there to be asked for the password of a key.
int no_password(char*, int, int, void* asked) {
  *static_cast<bool*>(asked) = true;
  return -1;
}

// Why OpenSSL could not use a PEM file. Takes its errors.
std::string what_is_wrong_with(const std::string& file, const char* content, bool asked) {
  const int reason = ERR_GET_REASON(ERR_peek_error());
  const std::string errors = openssl_errors();
  if (::access(file.c_str(), R_OK) != 0) return std::strerror(errno);
  if (asked) return "it is encrypted, and headrace knows no password";
  bool has_none = reason == PEM_R_NO_START_LINE;
#ifndef OPENSSL_IS_AWSLC
  has_none = has_none || reason == ERR_R_UNSUPPORTED;
#endif
  return has_none ? cat("it has no ", content, " in PEM form") : errors;
}

// Errors: kInvalidArgument.
Result<void> load_client_certificate(SSL_CTX* context, const TlsOptions& options) {
  const std::string& file = options.client_cert_file;
  const std::string& key_file = options.client_key_file.empty() ? file : options.client_key_file;
  if (file.empty()) {
    if (key_file.empty()) return {};
    return invalid_argument("there is the key of a client certificate, ", key_file,
                            ", and no certificate");
  }
  bool asked = false;
  ERR_clear_error();
  SSL_CTX_set_default_passwd_cb(context, &no_password);
  SSL_CTX_set_default_passwd_cb_userdata(context, &asked);
  const auto failed = [&asked](const char* what, const std::string& name, const char* content) {
    return invalid_argument("cannot use ", what, " ", name, ": ",
                            what_is_wrong_with(name, content, asked));
  };
  if (SSL_CTX_use_certificate_chain_file(context, file.c_str()) != 1) {
    return failed("the client certificate", file, "certificate");
  }
  if (SSL_CTX_use_PrivateKey_file(context, key_file.c_str(), SSL_FILETYPE_PEM) != 1) {
    const int reason = ERR_GET_REASON(ERR_peek_error());
    if (reason == X509_R_KEY_VALUES_MISMATCH || reason == X509_R_KEY_TYPE_MISMATCH) {
      ERR_clear_error();
      return invalid_argument("the key in ", key_file, " is not that of the client certificate in ",
                              file);
    }
    return failed("the key of the client certificate", key_file, "private key");
  }
  SSL_CTX_set_default_passwd_cb_userdata(context, nullptr);
  return {};
}

// Whether the server has ended a connection because of our certificate, or because we have none.
bool is_about_our_certificate(int reason) {
  switch (reason) {
    case SSL_AD_REASON_OFFSET + SSL_AD_CERTIFICATE_REQUIRED:
    case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN:
    case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
    case SSL_R_TLSV1_ALERT_ACCESS_DENIED: return true;
    default: return false;
  }
}

bool is_ip_literal(const std::string& host) {
  ASN1_OCTET_STRING* address = a2i_IPADDRESS(host.c_str());
  ASN1_OCTET_STRING_free(address);
  return address != nullptr;
}

}  // namespace

void RecordBorders::pass(std::span<const std::byte> received) {
  while (!received.empty()) {
    if (left_bytes_ == 0) {
      // Type, version and, in the last two bytes, the length.
      const auto byte = std::to_integer<size_t>(received.front());
      received = received.subspan(1);
      ++header_bytes_;
      if (header_bytes_ < kHeaderBytes - 1) continue;
      if (header_bytes_ == kHeaderBytes - 1) {
        body_bytes_ = byte << 8;
        continue;
      }
      header_bytes_ = 0;
      left_bytes_ = body_bytes_ |= byte;
      continue;
    }
    const size_t count = std::min(left_bytes_, received.size());
    left_bytes_ -= count;
    received = received.subspan(count);
  }
}

uint64_t RecordBorders::missing_bytes(uint64_t plain_bytes) const {
  // A record has less plain text than it is long.
  const uint64_t held_bytes = left_bytes_ > 0 ? body_bytes_ : 0;
  return left_bytes_ + (plain_bytes - std::min(plain_bytes, held_bytes));
}

// OpenSSL's own socket BIO calls write(), which raises SIGPIPE, and tries again after a receive
// that has emptied the socket.
struct LinkMethod {
  static TlsStream::Link& link_of(BIO* bio) {
    return *static_cast<TlsStream::Link*>(BIO_get_data(bio));
  }

  static int write(BIO* bio, const char* data, int size) {
    BIO_clear_retry_flags(bio);
    const TlsStream::Link& link = link_of(bio);
    const int flags = MSG_NOSIGNAL | (link.more ? MSG_MORE : 0);
    const ssize_t sent = ::send(link.descriptor, data, static_cast<size_t>(size), flags);
    if (sent < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_write(bio);
    return static_cast<int>(sent);
  }

  static int read(BIO* bio, char* data, int size) {
    BIO_clear_retry_flags(bio);
    TlsStream::Link& link = link_of(bio);
    if (link.empty) {
      BIO_set_retry_read(bio);
      return -1;
    }
    const auto room = static_cast<size_t>(size);
    ssize_t received = 0;
    do {
      received = ::recv(link.descriptor, data, room, 0);
    } while (received < 0 && errno == EINTR);
    if (received < 0) {
      if (errno == EAGAIN) BIO_set_retry_read(bio);
      return -1;
    }
    const std::span<const char> came(data, static_cast<size_t>(received));
    link.empty = !came.empty() && came.size() < room;
    link.borders.pass(std::as_bytes(came));
    return static_cast<int>(received);
  }

  static long control(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

  static BIO_METHOD* get() {
    static BIO_METHOD* const method = [] {
      BIO_METHOD* made =
          BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "headrace socket");
      BIO_meth_set_write(made, &write);
      BIO_meth_set_read(made, &read);
      BIO_meth_set_ctrl(made, &control);
      return made;
    }();
    return method;
  }
};

TlsContext::TlsContext(ssl_ctx_st* context, std::string client_cert_file)
    : context_(context), client_cert_file_(std::move(client_cert_file)) {}

TlsContext::~TlsContext() {
  const HoldsOffForks no_fork;
  SSL_SESSION_free(session_);
  SSL_CTX_free(context_);
}

Result<std::shared_ptr<TlsContext>> TlsContext::create(const TlsOptions& options) {
  const HoldsOffForks no_fork;
  SSL_CTX* raw = SSL_CTX_new(TLS_client_method());
  if (raw == nullptr) return fail(Code::kInternal, "no TLS context: ", openssl_errors());
  std::shared_ptr<TlsContext> self(new TlsContext(raw, options.client_cert_file));
  SSL_CTX_set_min_proto_version(raw, TLS1_2_VERSION);
  SSL_CTX_set_verify(raw, options.skip_verify ? SSL_VERIFY_NONE : SSL_VERIFY_PEER, nullptr);
  SSL_CTX_set_mode(raw, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_read_ahead(raw, 1);
  SSL_CTX_set_default_read_buffer_len(raw, kReadBufferBytes);
  SSL_CTX_set_session_cache_mode(raw, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
  SSL_CTX_sess_set_new_cb(raw, &TlsContext::on_new_session);
  SSL_CTX_set_ex_data(raw, context_index(), self.get());
  std::string failure;
  if (!options.skip_verify && !load_roots(raw, options, failure)) return invalid_argument(failure);
  if (Result<void> loaded = load_client_certificate(raw, options); !loaded) {
    return std::unexpected(std::move(loaded.error()));
  }
  return self;
}

int TlsContext::on_new_session(ssl_st* ssl, ssl_session_st* session) {
  auto* self = static_cast<TlsContext*>(SSL_CTX_get_ex_data(SSL_get_SSL_CTX(ssl), context_index()));
  const Lock lock(self->mutex_);
  SSL_SESSION_free(self->session_);
  self->session_ = session;
  return 1;  // the reference is ours now
}

TlsStream::TlsStream(std::shared_ptr<TlsContext> context, ssl_st* ssl, int descriptor)
    : context_(std::move(context)), ssl_(ssl), link_{.descriptor = descriptor, .borders = {}} {}

TlsStream::~TlsStream() {
  const HoldsOffForks no_fork;
  // Without this OpenSSL treats the missing close_notify as a failure and refuses to resume.
  SSL_set_shutdown(ssl_, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
  SSL_free(ssl_);
}

Result<std::unique_ptr<TlsStream>> TlsStream::create(std::shared_ptr<TlsContext> context,
                                                     int descriptor, const std::string& host) {
  const HoldsOffForks no_fork;
  SSL* ssl = SSL_new(context->context_);
  BIO* bio = ssl == nullptr ? nullptr : BIO_new(LinkMethod::get());
  if (bio == nullptr) {
    SSL_free(ssl);
    return fail(Code::kExhausted, "no memory for a TLS connection");
  }
  std::unique_ptr<TlsStream> self(new TlsStream(std::move(context), ssl, descriptor));
  BIO_set_data(bio, &self->link_);
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl, bio, bio);
  SSL_set_connect_state(ssl);
  // Without this any certificate of a known CA would be accepted.
  const bool checks_host =
      is_ip_literal(host) ? X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host.c_str()) == 1
                          : SSL_set1_host(ssl, host.c_str()) == 1 &&
                                SSL_set_tlsext_host_name(ssl, host.c_str()) == 1;
  if (!checks_host) {
    return fail(Code::kUnavailable, "TLS cannot check certificates for host ", host, ": ",
                openssl_errors());
  }
  {
    const Lock lock(self->context_->mutex_);
    if (self->context_->session_ != nullptr) SSL_set_session(ssl, self->context_->session_);
  }
  return self;
}

Result<TlsStream::Step> TlsStream::classify(int result, const char* what) {
  const int saved_errno = errno;
  switch (SSL_get_error(ssl_, result)) {
    case SSL_ERROR_WANT_READ: return Step{.need = Need::kReadable};
    case SSL_ERROR_WANT_WRITE: return Step{.need = Need::kWritable};
    case SSL_ERROR_ZERO_RETURN: return Step{.end = true};
    case SSL_ERROR_SSL:
      if (ERR_GET_REASON(ERR_peek_error()) == SSL_R_UNEXPECTED_EOF_WHILE_READING) {
        ERR_clear_error();
        return Step{.end = true, .truncated = true};
      }
      break;
    case SSL_ERROR_SYSCALL:
      // No system error: the connection has ended without the end of TLS.
      if (saved_errno == 0) return Step{.end = true, .truncated = true};
      return fail(Code::kUnavailable, what, ": ", std::strerror(saved_errno));
    default: break;
  }
  const long verdict = SSL_get_verify_result(ssl_);
  if (verdict != X509_V_OK && SSL_get_verify_mode(ssl_) != SSL_VERIFY_NONE) {
    ERR_clear_error();
    // Not retried: the next handshake would see the same certificate.
    return fail(Code::kPermissionDenied, what,
                ": the server's certificate was refused: ", X509_verify_cert_error_string(verdict),
                " (set SSL_CERT_FILE or ca_file to the CA that signed it)");
  }
  if (is_about_our_certificate(ERR_GET_REASON(ERR_peek_error()))) {
    const std::string& file = context_->client_cert_file_;
    const std::string remedy = file.empty() ? "none was sent: set client_cert_file" : file;
    return fail(Code::kPermissionDenied, what, ": the server does not accept the certificate of ",
                "this client (", remedy, "): ", openssl_errors());
  }
  return fail(Code::kUnavailable, what, ": ", openssl_errors());
}

Result<TlsStream::Step> TlsStream::handshake() {
  const HoldsOffForks no_fork;
  ERR_clear_error();
  errno = 0;
  link_.empty = link_.more = false;
  const int result = SSL_do_handshake(ssl_);
  if (result == 1) return Step{};
  Result<Step> step = classify(result, "TLS handshake failed");
  if (step && step->end) return fail(Code::kUnavailable, "TLS handshake failed: connection closed");
  return step;
}

bool TlsStream::resumed() const { return SSL_session_reused(ssl_) == 1; }

Result<TlsStream::Step> TlsStream::read(std::span<std::byte> into) {
  if (failed_) return std::unexpected(*failed_);
  const HoldsOffForks no_fork;
  ERR_clear_error();
  errno = 0;
  link_.more = false;
  into = into.first(std::min(into.size(), kMostReadBytes));
  // One call of OpenSSL returns one record; all that have arrived go straight into `into`.
  size_t count = 0, total = 0;
  while (total < into.size()) {
    const int result = SSL_read_ex(ssl_, into.data() + total, into.size() - total, &count);
    if (result == 1) {
      total += count;
      if (drained()) break;  // there is nothing that another call could bring
      continue;
    }
    // The connection may have ended behind what the last receive brought: no event would tell.
    if (total == 0 && SSL_want_read(ssl_) && std::exchange(link_.empty, false)) continue;
    Result<Step> step = classify(result, "TLS read failed");
    // Of OpenSSL's errors, a later call would say that the connection has ended.
    if (!step) failed_ = step.error();
    over_ = !step || step->end;
    if (total > 0) return Step{.count = total};  // what has stopped us comes on the next call
    return step;
  }
  return Step{.count = total};
}

bool TlsStream::drained() const { return link_.empty && SSL_has_pending(ssl_) == 0; }

Result<TlsStream::Step> TlsStream::write(std::span<const std::byte> bytes, bool more) {
  const HoldsOffForks no_fork;
  ERR_clear_error();
  errno = 0;
  // One call sends one record.
  link_.more = more || bytes.size() > SSL3_RT_MAX_PLAIN_LENGTH;
  size_t count = 0;
  const int result = SSL_write_ex(ssl_, bytes.data(), bytes.size(), &count);
  if (result == 1) return Step{.count = count};
  return classify(result, "TLS write failed");
}

}  // namespace headrace
