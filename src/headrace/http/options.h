// The transport options of a store. Their defaults are defined only here; Python reads them.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "headrace/format/url.h"

namespace headrace {

struct TimeoutOptions {
  std::chrono::milliseconds connect{5'000};      // TCP, per address; also bounds DNS
  std::chrono::milliseconds tls{10'000};         // handshake
  std::chrono::milliseconds first_byte{30'000};  // request sent until the first byte of the answer
  std::chrono::milliseconds stall{30'000};       // without one byte of progress in either direction
  std::chrono::milliseconds total{300'000};      // a request with all its attempts and waits
  bool operator==(const TimeoutOptions&) const = default;
};

struct TlsOptions {
  // PEM bundle; empty: SSL_CERT_FILE, then OpenSSL's default, then the usual paths of
  // distributions.
  std::string ca_file = {};
  // PEM: the certificate by which a server knows this client, followed by those that vouch for it;
  // empty: none.
  std::string client_cert_file = {};
  // PEM: the key of that certificate, not encrypted; empty: it is in the same file.
  std::string client_key_file = {};
  // Accept any server certificate: anybody on the path can read and change everything.
  bool skip_verify = false;
  auto operator<=>(const TlsOptions&) const = default;
};

struct ProxyOptions {
  std::string http_proxy = {};   // for http:// endpoints; empty: none
  std::string https_proxy = {};  // for https:// endpoints, by CONNECT
  std::string no_proxy = {};
  bool operator==(const ProxyOptions&) const = default;
};

}  // namespace headrace
