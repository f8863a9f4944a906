#include "headrace/dataset/roots.h"

#include "headrace/format/url.h"

namespace headrace {
namespace {

constexpr std::string_view kFileRoot = "file:///";

}  // namespace

Result<std::string> normal_root(std::string_view url) {
  const Result<Url> parsed = parse_url(url);
  if (!parsed) return std::unexpected(parsed.error());
  std::string out = parsed->to_string();
  while (out.ends_with('/') && out != kFileRoot) out.pop_back();
  return out;
}

std::string url_below(std::string_view root, std::string_view name) {
  return cat(root, root.empty() || root.ends_with('/') ? "" : "/", name);
}

std::optional<std::string_view> name_below(std::string_view root, std::string_view url) {
  if (!url.starts_with(root)) return {};
  url.remove_prefix(root.size());
  if (root.empty() || root.ends_with('/')) return url;
  if (!url.starts_with('/')) return {};
  return url.substr(1);
}

std::string_view bucket_of(std::string_view root) {
  const size_t separator = root.find("://");
  if (separator == std::string_view::npos) return ".";
  if (root.starts_with(kFileRoot)) return root.substr(0, kFileRoot.size());
  size_t begin = separator + 3;
  // A namespace of AIStore is part of its bucket.
  if (begin < root.size() && (root[begin] == '@' || root[begin] == '#')) {
    begin = std::min(root.find('/', begin), root.size() - 1) + 1;
  }
  return root.substr(0, std::min(root.size(), root.find('/', begin)));
}

}  // namespace headrace
