// How requests to Google Cloud Storage name a bucket and what is in it.
#pragma once

#include <string>
#include <string_view>

#include "headrace/http/message.h"
#include "headrace/store/options.h"
#include "headrace/store/root.h"

namespace headrace {

// What is asked of an object's metadata.
inline constexpr std::string_view kGcsObjectFields =
    "name,size,generation,metageneration,crc32c,contentType,contentEncoding,updated,storageClass,"
    "componentCount";

// Thread: any (immutable). Borrows the root.
class GcsPaths {
 public:
  GcsPaths(std::string bucket, const std::string& user_project, const Root& root);

  const std::string& bucket() const { return bucket_; }
  // "/storage/v1/b/<bucket>/o"
  const std::string& objects() const { return objects_; }
  // "&userProject=...", or "".
  const std::string& user_project() const { return user_project_; }

  // Append a name below the root: to a path, or as a parameter, which is omitted if both are empty.
  void append_path(std::string& target, std::string_view name) const;
  void append_below(std::string& target, std::string_view parameter, std::string_view name) const;
  std::string quoted(std::string_view name) const;  // as a JSON string
  // "/storage/v1/b/<bucket>/o/<name>"
  void append_object(std::string& target, std::string_view name) const {
    target.append(objects_).append("/");
    append_path(target, name);
  }
  // The XML API: "/<bucket>/<name>?<what>", with the project that is billed.
  void begin_xml(HttpRequest& request, std::string_view method, std::string_view name,
                 std::string_view what) const;

  // "&<name>=<value>", omitted if the value is empty.
  static void append_parameter(std::string& target, std::string_view name, std::string_view value);
  static void append_precondition(std::string& target, const Precondition& precondition);
  // The members of an object's metadata that describe its content: '"contentType":"...",...'.
  // Refuses texts that cannot be headers, too: an object is sent with them as such.
  static std::string content_members(HttpRequest& request, const std::string& content_type,
                                     const std::string& content_encoding);

 private:
  const std::string bucket_;
  const std::string objects_;
  const Root& root_;
  const std::string root_path_;  // the root, encoded for paths: once for all requests
  const std::string user_project_;
  const std::string xml_project_;  // the project's name alone
};

}  // namespace headrace
