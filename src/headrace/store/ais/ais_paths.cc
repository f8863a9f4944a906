#include "headrace/store/ais/ais_paths.h"

#include <algorithm>
#include <utility>

#include "headrace/base/ascii.h"
#include "headrace/format/ais_owner.h"
#include "headrace/format/percent.h"

namespace headrace {
namespace {

// Of a namespace as URLs have it: "@cluster#name".
std::pair<std::string_view, std::string_view> cluster_and_name(std::string_view name_space) {
  const size_t hash = std::min(name_space.find('#'), name_space.size());
  std::string_view cluster = name_space.substr(0, hash);
  if (!cluster.empty()) cluster.remove_prefix(1);
  return {cluster, hash < name_space.size() ? name_space.substr(hash + 1) : ""};
}

std::string hashed_bucket(const Url& url) {
  const auto [cluster, name] = cluster_and_name(url.name_space);
  return ais_bucket_uname(ais_provider_name(url.backend), cluster, name, url.bucket);
}

std::string parameters_of(const Url& url) {
  std::string out = cat("?provider=", ais_provider_name(url.backend));
  if (!url.name_space.empty()) AisPaths::append_parameter(out, "namespace", url.name_space);
  return out;
}

}  // namespace

std::string_view ais_provider_name(std::string_view backend) {
  if (backend == "s3") return "aws";
  if (backend == "gs") return "gcp";
  if (backend == "az") return "azure";
  return backend.empty() ? "ais" : backend;
}

AisPaths::AisPaths(const Url& url, const AisOptions& options, const Root& root)
    : root_(root),
      bucket_name_(url.bucket),
      bucket_url_(cat(url.scheme_text(), "://", url.authority())),
      hashed_root_(hashed_bucket(url) + root.text()),
      objects_(
          cat("/v1/objects/", percent_encode(url.bucket), "/", percent_encode_path(root.text()))),
      bucket_(cat("/v1/buckets/", percent_encode(url.bucket))),
      parameters_(parameters_of(url)) {
  if (options.etl_name.empty()) return;
  append_parameter(etl_parameters_, "etl_name", options.etl_name);
  if (!options.etl_args.empty()) append_parameter(etl_parameters_, "etl_args", options.etl_args);
}

void AisPaths::append_parameter(std::string& target, std::string_view name,
                                std::string_view value) {
  target.append("&").append(name).append("=");
  percent_encode_to(target, value);
}

std::string AisPaths::wrong_with(std::string_view full_name) {
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  if (std::ranges::any_of(full_name, is_control)) return "it has control characters";
  for (size_t begin = 0; begin <= full_name.size();) {
    const size_t end = std::min(full_name.find('/', begin), full_name.size());
    const std::string_view component = full_name.substr(begin, end - begin);
    if (component.empty()) {
      return "it begins or ends with a slash, or has two that follow each other";
    }
    if (component == "." || component == "..") return "'.' and '..' have a meaning in paths";
    begin = end + 1;
  }
  return "";
}

void AisPaths::begin(HttpRequest& request, std::string_view method, std::string_view name) const {
  request.method = method;
  request.target.append(objects_);
  percent_encode_path_to(request.target, name);
  request.target.append(parameters_);
  request.object = name;
  // The root, which was looked at when the store was opened, ends with a slash.
  if (const std::string wrong = wrong_with(name); !wrong.empty() && !request.refused) {
    const bool makes = method == "PUT" || method == "POST";
    request.refused = Error(makes ? Code::kInvalidArgument : Code::kNotFound,
                            cat("AIStore has no objects of such a name: ", wrong));
  }
}

void AisPaths::begin_bucket(HttpRequest& request, std::string_view method) const {
  request.method = method;
  request.target.append(bucket_).append(parameters_);
}

}  // namespace headrace
