#include "headrace/format/url.h"

#include <arpa/inet.h>
#include <simdjson.h>

#include <algorithm>
#include <optional>

#include "headrace/base/ascii.h"

namespace headrace {
namespace {

bool is_alnum(char c) {
  return (c >= '0' && c <= '9') || (ascii_lower(c) >= 'a' && ascii_lower(c) <= 'z');
}

// `text` for an error message: one line, printable, not endless.
std::string shown(std::string_view text) {
  constexpr size_t kMaxShown = 300;
  std::string out = "'";
  for (const char c : text.substr(0, kMaxShown)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7F) {
      out += "\\x";
      out += kHexDigits[byte >> 4];
      out += kHexDigits[byte & 15];
    } else {
      out += c;
    }
  }
  if (text.size() > kMaxShown) out += "...";
  return out + "'";
}

Result<Url> checked(std::string_view text, Url url) {
  if (url.name.find('\0') != std::string::npos) {
    return invalid_argument(shown(text), ": a name cannot contain a NUL byte");
  }
  if (url.scheme != Scheme::kFile && !simdjson::validate_utf8(url.name)) {
    return invalid_argument(shown(text), ": the name is not UTF-8");
  }
  return url;
}

// A host name or an address, without brackets. Names of services in clusters have underscores.
bool is_host(std::string_view host) {
  if (host.empty() || host.size() > 253) return false;
  if (!is_alnum(host.front()) && host.front() != '_') return false;
  return std::ranges::all_of(
      host, [](char c) { return is_alnum(c) || c == '-' || c == '.' || c == '_'; });
}

bool is_ipv6(std::string_view host) {
  if (host.find('\0') != std::string_view::npos) return false;  // inet_pton would stop there
  in6_addr address{};
  return inet_pton(AF_INET6, std::string(host).c_str(), &address) == 1;
}

bool is_path(std::string_view path) {  // of RFC 3986: what may stand in a request as it is
  return std::ranges::all_of(path, [](char c) {
    return is_alnum(c) || std::string_view("/-._~%!$&'()*+,;=:@").find(c) != std::string_view::npos;
  });
}

// "s3" of "ais+s3"; "" of what is no such scheme. The names by which AIStore itself calls its
// backends will do, too.
std::string_view backend_of(std::string_view scheme) {
  constexpr std::string_view kBefore = "ais+";
  if (!scheme.starts_with(kBefore)) return "";
  const std::string_view backend = scheme.substr(kBefore.size());
  if (backend == "s3" || backend == "aws") return "s3";
  if (backend == "gs" || backend == "gcp") return "gs";
  if (backend == "az" || backend == "azure") return "az";
  if (backend == "oci" || backend == "oc") return "oci";
  return backend == "ht" ? "ht" : "";
}

std::optional<Scheme> scheme_of(std::string_view text) {
  const std::string scheme = ascii_lower(text);
  if (scheme == "gs" || scheme == "gcs") return Scheme::kGs;
  if (scheme == "s3") return Scheme::kS3;
  if (scheme == "ais" || !backend_of(scheme).empty()) return Scheme::kAis;
  if (scheme == "file") return Scheme::kFile;
  return std::nullopt;
}

// Takes "@cluster#namespace/" off the front. Errors: what is wrong with it.
Result<std::string> take_namespace(std::string_view text, std::string_view& rest) {
  if (!rest.starts_with('@') && !rest.starts_with('#')) return std::string();
  const size_t slash = rest.find('/');
  if (slash == std::string_view::npos) {
    return invalid_argument(shown(text), ": the bucket is missing after the namespace");
  }
  std::string_view name_space = rest.substr(0, slash);
  rest.remove_prefix(slash + 1);
  const auto is_word = [](std::string_view word) {
    return !word.empty() && std::ranges::all_of(word, [](char c) {
      return is_alnum(c) || c == '-' || c == '_' || c == '.';
    });
  };
  // AIStore's own text for a namespace of this cluster.
  if (name_space.starts_with("@#")) name_space.remove_prefix(1);
  const size_t hash = name_space.find('#');
  const std::string_view cluster = name_space.substr(0, hash);
  const bool good_cluster = cluster.empty() || is_word(cluster.substr(1));
  const bool good_name = hash == std::string_view::npos || is_word(name_space.substr(hash + 1));
  if (!good_cluster || !good_name) {
    return invalid_argument(shown(text), ": ", shown(name_space), " is no namespace; write ",
                            "#name, @cluster or @cluster#name");
  }
  return std::string(name_space);
}

}  // namespace

std::string_view to_string(Scheme scheme) {
  switch (scheme) {
    case Scheme::kGs: return "gs";
    case Scheme::kS3: return "s3";
    case Scheme::kAis: return "ais";
    case Scheme::kFile: return "file";
  }
  return "file";
}

std::string Url::scheme_text() const {
  return cat(headrace::to_string(scheme), backend.empty() ? "" : "+", backend);
}

std::string Url::authority() const {
  return cat(name_space, name_space.empty() ? "" : "/", bucket);
}

std::string Url::to_string() const {
  if (scheme != Scheme::kFile) return cat(scheme_text(), "://", authority(), "/", name);
  return name.starts_with('/') ? cat("file://", name) : name;
}

Result<Url> parse_url(std::string_view text) {
  const size_t separator = text.find("://");
  if (separator == std::string_view::npos) {
    if (text.empty()) return invalid_argument("an empty URL");
    // As a path it would be a directory of this name, and what is written to it lost from sight.
    const size_t colon = text.find(":/");
    if (colon != std::string_view::npos && scheme_of(text.substr(0, colon))) {
      return invalid_argument(shown(text), ": a URL has two slashes (three for files) behind the ",
                              "colon; pathlib takes one out: pass the URL as a str. If it is a ",
                              "path, write ./ before it");
    }
    return checked(text, Url{.scheme = Scheme::kFile, .bucket = {}, .name = std::string(text)});
  }
  const std::string_view scheme_text = text.substr(0, separator);
  const std::optional<Scheme> scheme = scheme_of(scheme_text);
  if (!scheme) {
    return invalid_argument(shown(text), ": unknown scheme ", shown(ascii_lower(scheme_text)),
                            "; known are gs, s3, ais, file, and plain paths; and ais+s3, ais+gs, "
                            "ais+az, ais+oci and ais+ht");
  }
  std::string_view rest = text.substr(separator + 3);
  if (*scheme == Scheme::kFile) {
    if (!rest.starts_with('/')) {
      return invalid_argument(shown(text),
                              ": write file:///path; a file on another host cannot be read");
    }
    return checked(text, Url{.scheme = Scheme::kFile, .bucket = {}, .name = std::string(rest)});
  }
  Url url{.scheme = *scheme, .bucket = {}, .name = {}};
  if (*scheme == Scheme::kAis) {
    url.backend = backend_of(ascii_lower(scheme_text));
    Result<std::string> name_space = take_namespace(text, rest);
    if (!name_space) return std::unexpected(std::move(name_space.error()));
    url.name_space = std::move(*name_space);
  }
  const size_t slash = rest.find('/');
  url.bucket = rest.substr(0, slash);
  if (slash != std::string_view::npos) url.name = rest.substr(slash + 1);
  if (url.bucket.empty()) return invalid_argument(shown(text), ": the bucket is missing");
  const bool allowed = std::ranges::all_of(
      url.bucket, [](char c) { return is_alnum(c) || c == '-' || c == '_' || c == '.'; });
  // A bucket of dots alone would change the path of every request.
  if (!allowed || std::ranges::none_of(url.bucket, is_alnum)) {
    return invalid_argument(shown(text), ": ", shown(url.bucket), " cannot be a bucket's name");
  }
  return checked(text, std::move(url));
}

Url root_url(Url url, std::string_view directory) {
  if (url.scheme != Scheme::kFile) {
    while (url.name.ends_with('/')) url.name.pop_back();
    return url;
  }
  const std::string path = url.name.starts_with('/') ? url.name : cat(directory, "/", url.name);
  url.name.clear();
  for (size_t begin = 0; begin < path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view component = std::string_view(path).substr(begin, end - begin);
    if (!component.empty() && component != ".") url.name.append("/").append(component);
    begin = end + 1;
  }
  if (url.name.empty()) url.name = "/";
  return url;
}

std::string Endpoint::authority() const {
  const bool is_address = host.find(':') != std::string::npos;
  std::string out = is_address ? cat("[", host, "]") : host;
  if (port != (tls ? 443 : 80)) out += cat(":", port);
  return out;
}

Result<Endpoint> parse_endpoint(std::string_view text, bool default_tls) {
  Endpoint endpoint;
  endpoint.tls = default_tls;
  std::string_view rest = text;
  if (const size_t separator = text.find("://"); separator != std::string_view::npos) {
    const std::string scheme = ascii_lower(text.substr(0, separator));
    if (scheme != "http" && scheme != "https") {
      return invalid_argument(shown(text), ": an endpoint begins with http:// or https://");
    }
    endpoint.tls = scheme == "https";
    rest = text.substr(separator + 3);
  }
  const size_t slash = rest.find('/');
  std::string_view authority = rest.substr(0, slash);
  std::string_view path = slash == std::string_view::npos ? "" : rest.substr(slash);
  if (authority.find('@') != std::string_view::npos) {
    // The text is not shown: what stands there is most often a password.
    return invalid_argument("an endpoint cannot carry a user or a password");
  }

  std::string_view port;
  bool has_port = false;
  if (authority.starts_with('[')) {
    const size_t bracket = authority.find(']');
    if (bracket == std::string_view::npos) {
      return invalid_argument(shown(text), ": the ']' is missing");
    }
    endpoint.host = ascii_lower(authority.substr(1, bracket - 1));
    if (!is_ipv6(endpoint.host)) {
      return invalid_argument(shown(text), ": ", shown(endpoint.host), " is no IPv6 address");
    }
    const std::string_view behind = authority.substr(bracket + 1);
    if (!behind.empty() && behind.front() != ':') {
      return invalid_argument(shown(text), ": after the ']' only a port can follow");
    }
    has_port = !behind.empty();
    if (has_port) port = behind.substr(1);
  } else {
    const size_t colon = authority.find(':');
    has_port = colon != std::string_view::npos;
    if (has_port) port = authority.substr(colon + 1);
    endpoint.host = ascii_lower(authority.substr(0, colon));
    if (!is_host(endpoint.host)) {
      return invalid_argument(
          shown(text), ": ", shown(endpoint.host), " is no host name",
          port.find(':') != std::string_view::npos ? " (an IPv6 address stands in brackets)" : "");
    }
  }
  endpoint.port = endpoint.tls ? 443 : 80;
  if (has_port) {
    endpoint.port = parse_number<decltype(endpoint.port)>(port).value_or(0);
    if (endpoint.port == 0) return invalid_argument(shown(text), ": ", shown(port), " is no port");
  }
  if (!is_path(path)) {
    return invalid_argument(shown(text), ": the path has characters that must be percent-encoded");
  }
  while (path.ends_with('/')) path.remove_suffix(1);
  endpoint.base_path = path;
  return endpoint;
}

}  // namespace headrace
