#include "headrace/store/gcs/gcs_paths.h"

#include <utility>

#include "headrace/format/json_quote.h"
#include "headrace/format/percent.h"

namespace headrace {

GcsPaths::GcsPaths(std::string bucket, const std::string& user_project, const Root& root)
    : bucket_(std::move(bucket)),
      objects_(cat("/storage/v1/b/", percent_encode(bucket_), "/o")),
      root_(root),
      root_path_(percent_encode(root.text())),
      user_project_(user_project.empty() ? "" : cat("&userProject=", percent_encode(user_project))),
      xml_project_(user_project) {}

void GcsPaths::append_path(std::string& target, std::string_view name) const {
  target.append(root_path_);
  percent_encode_to(target, name);
}

void GcsPaths::append_below(std::string& target, std::string_view parameter,
                            std::string_view name) const {
  if (root_path_.empty() && name.empty()) return;
  target.append("&").append(parameter).append("=");
  append_path(target, name);
}

std::string GcsPaths::quoted(std::string_view name) const {
  return json_quote(root_.full_name(name));
}

void GcsPaths::begin_xml(HttpRequest& request, std::string_view method, std::string_view name,
                         std::string_view what) const {
  request.method = method;
  request.target.append("/");
  percent_encode_to(request.target, bucket_);
  if (!name.empty()) {
    request.target.append("/");
    append_path(request.target, name);
  }
  request.target.append("?").append(what);
  if (!xml_project_.empty()) request.add_header("x-goog-user-project", xml_project_);
}

void GcsPaths::append_parameter(std::string& target, std::string_view name,
                                std::string_view value) {
  if (value.empty()) return;
  target.append("&").append(name).append("=");
  percent_encode_to(target, value);
}

void GcsPaths::append_precondition(std::string& target, const Precondition& precondition) {
  if (!precondition.generation) return;
  append_parameter(target, "ifGenerationMatch",
                   precondition.generation->empty() ? "0" : *precondition.generation);
}

std::string GcsPaths::content_members(HttpRequest& request, const std::string& content_type,
                                      const std::string& content_encoding) {
  request.check_text("content_type", content_type);
  request.check_text("content_encoding", content_encoding);
  std::string members = cat("\"contentType\":", json_quote(content_type_or_default(content_type)));
  if (!content_encoding.empty()) {
    members += cat(",\"contentEncoding\":", json_quote(content_encoding));
  }
  return members;
}

}  // namespace headrace
