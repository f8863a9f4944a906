// The addresses users write (gs://bucket/name) and the addresses stores listen on.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "headrace/base/result.h"

namespace headrace {

enum class Scheme : uint8_t { kGs, kS3, kAis, kFile };

std::string_view to_string(Scheme scheme);  // "gs", "s3", "ais", "file"

// The place of an object or a prefix. Names are bytes, not URL text: `%`, `#`, `?`, `+`, spaces and
// newlines are part of a name, so "gs://b/50%#1" names the object "50%#1".
struct Url {
  Scheme scheme = Scheme::kFile;
  std::string bucket = {};  // "" for kFile
  std::string name = {};    // for kFile the path; may be "" (the bucket as a whole)
  // Of kAis. Where AIStore has the bucket from: "s3", "gs", "az", "oci" or "ht"; "" for its own.
  std::string backend = {};
  // Of kAis: "#name", "@cluster" or "@cluster#name"; "" for the global namespace.
  std::string name_space = {};

  // What precedes "://": "gs", "ais+s3". The text from there to the name is authority().
  std::string scheme_text() const;
  // What stands between "://" and the '/' before the name: the bucket, with its namespace.
  std::string authority() const;

  // parse_url(url.to_string()) is the same Url again. A relative path stays a relative path; an
  // absolute one is written file:///path.
  std::string to_string() const;
  bool operator==(const Url&) const = default;
};

// gs:// (also gcs://), s3://, ais://, file:///absolute/path, and plain paths: all text without
// "://", except what begins with a scheme and a single slash, which was a URL before some library
// normalized it as a path. AIStore's buckets may be those of another service ("ais+s3://bucket")
// and lie in a namespace, of this cluster or of another one that is attached to it
// ("ais://#namespace/bucket", "ais://@cluster#namespace/bucket"). Bucket names may have letters,
// digits, '-', '_' and '.', the union of what stores allow; each store has stricter rules of its
// own. Errors: kInvalidArgument, with the URL and what is wrong with it.
Result<Url> parse_url(std::string_view text);

// The root of a store opened at `url`, in canonical form: names are relative to it, and their URLs
// are its text, '/', and the name. Trailing slashes are removed, so that "gs://b/run" and
// "gs://b/run/" are the same. A path becomes absolute (relative ones start at `directory`), without
// empty components and ".". The topmost roots are "gs://b/" and "file:///".
Url root_url(Url url, std::string_view directory);

// A server to connect to, and the prefix of every path there.
struct Endpoint {
  bool tls = true;
  std::string host = {};  // a name, an IPv4 or an IPv6 address (without brackets), in lower case
  uint16_t port = 443;
  std::string base_path = {};  // "" or "/base": begins with '/', does not end with one

  // What the Host header says: the port is left out where it is the scheme's own (443 with TLS,
  // 80 without); IPv6 stands in brackets.
  std::string authority() const;
  bool operator==(const Endpoint&) const = default;
  auto operator<=>(const Endpoint&) const = default;
};

// "https://host[:port][/base]", "http://...", and without a scheme "host[:port][/base]", where
// `default_tls` decides. IPv6 needs its brackets.
// Errors: kInvalidArgument, with the text and what is wrong with it.
Result<Endpoint> parse_endpoint(std::string_view text, bool default_tls);

}  // namespace headrace
