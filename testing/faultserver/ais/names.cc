// Names of buckets and objects.
#include <algorithm>

#include "ais/ais.h"
#include "text.h"

namespace faultserver::ais {
namespace {

struct Provider {
  std::string_view name, scheme;
};
constexpr Provider kProviders[] = {{"ais", "ais"},  {"aws", "s3"}, {"gcp", "gs"},
                                   {"azure", "az"}, {"oci", "oc"}, {"ht", "ht"}};

std::optional<Provider> provider_from(std::string_view text) {
  const auto* const found = std::ranges::find_if(kProviders, [text](const Provider& each) {
    return each.name == text || each.scheme == text;
  });
  if (found == std::end(kProviders)) return std::nullopt;
  return *found;
}

// "@uuid#name", "#name".
std::string namespace_text(const BucketName& name) {
  if (name.uuid.empty() && name.space.empty()) return {};
  return (name.uuid.empty() ? "" : "@" + name.uuid) + "#" + name.space;
}

void read_namespace(std::string_view text, BucketName& name) {
  const size_t hash = text.find('#');
  std::string_view uuid = text.substr(0, hash);
  if (uuid.starts_with('@')) uuid.remove_prefix(1);
  name.uuid = uuid;
  if (hash != std::string_view::npos) name.space = text.substr(hash + 1);
}

}  // namespace

BucketName BucketName::from_key(std::string_view key) {
  BucketName out;
  const size_t colon = key.find("://");
  if (colon != std::string_view::npos) {
    const std::optional<Provider> provider = provider_from(key.substr(0, colon));
    out.provider = provider ? provider->name : key.substr(0, colon);
    key.remove_prefix(colon + 3);
    if (const size_t slash = key.find('/'); slash != std::string_view::npos) {
      read_namespace(key.substr(0, slash), out);
      key.remove_prefix(slash + 1);
    }
  }
  out.name = key;
  return out;
}

std::string BucketName::key() const {
  const std::string space_text = namespace_text(*this);
  if (provider == "ais" && space_text.empty()) return name;
  return provider + "://" + (space_text.empty() ? "" : space_text + "/") + name;
}

std::string BucketName::shown() const {
  const std::string space_text = namespace_text(*this);
  const std::optional<Provider> known = provider_from(provider);
  return std::string(known ? known->scheme : provider) + "://" +
         (space_text.empty() ? "" : space_text + "/") + name;
}

std::string BucketName::unique_prefix() const {
  return provider + "/@" + uuid + "#" + space + "/" + name + "/";
}

std::optional<BucketName> bucket_name(const Request& request, std::string name) {
  BucketName out{.name = std::move(name)};
  if (request.query.empty()) return out;
  if (const std::string text = request.parameter("provider"); !text.empty() && text != "ais") {
    const std::optional<Provider> provider = provider_from(text);
    if (!provider) return std::nullopt;
    out.provider = provider->name;
  }
  if (const std::string text = request.parameter("namespace"); !text.empty()) {
    read_namespace(text, out);
  }
  return out;
}

const std::string& unique_prefix_of(Bucket& bucket) {
  std::string& prefix = bucket.ais.unique_prefix;
  if (prefix.empty()) prefix = BucketName::from_key(bucket.name).unique_prefix();
  return prefix;
}

std::string collapsed(std::string_view object) {
  std::string out;
  out.reserve(object.size());
  for (const char c : object) {
    if (c != '/' || !out.ends_with('/')) out += c;
  }
  for (size_t at = out.find("/./"); at != std::string::npos; at = out.find("/./")) out.erase(at, 2);
  return out;
}

bool is_valid_object_name(std::string_view name) {
  return !name.empty() && !name.starts_with('/') && !name.ends_with('/') && name != ".." &&
         !name.contains("/../") && !name.starts_with("../") && !name.ends_with("/..");
}

}  // namespace faultserver::ais
