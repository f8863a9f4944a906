// How large objects get to AIStore.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "headrace/store/ais/ais_paths.h"
#include "headrace/store/appends.h"
#include "headrace/store/multipart_uploads.h"
#include "headrace/store/protocol.h"

namespace headrace {

// Servers before 1.4 have none. https://github.com/NVIDIA/aistore/blob/main/docs/http_api.md
// Thread: any (immutable). Borrows the paths.
class AisMultipartUploads final : public MultipartUploads {
 public:
  explicit AisMultipartUploads(const AisPaths& paths) : paths_(paths) {}

  bool is_conditional() const override { return true; }  // as much as writes are
  bool bounds_parts() const override { return false; }
  void build_start(HttpRequest& request, const WriteRequest& write, SumLevel level) const override;
  Result<std::string> parse_started(const Response& response) const override;
  void build_part(HttpRequest& request, std::string_view name, std::string_view upload_id,
                  uint32_t part_number, std::span<const std::span<const std::byte>> bytes,
                  const SentSums& sums) const override;
  // A server that knows no such check stores the part without it.
  bool names_parts() const override { return false; }
  void build_complete(HttpRequest& request, const MultipartCompletion& completion,
                      std::string& scratch) const override;
  Result<CompletedUpload> parse_completed(const Response&) const override { return {}; }
  void build_abort(HttpRequest& request, std::string_view name,
                   std::string_view upload_id) const override;
  void build_list(HttpRequest& request, std::string_view prefix, std::string_view after_name,
                  std::string_view after_upload_id) const override;

 private:
  const AisPaths& paths_;
};

// The two properties of an object that AIStore does not have, and keeps for us as custom ones.
inline constexpr std::string_view kAisContentType = "headrace-content-type";
inline constexpr std::string_view kAisContentEncoding = "headrace-content-encoding";
// Their values as the server keeps them: it tells all properties in one line, and separates them by
// commas, so that what could be taken for more than a value is percent-encoded; and back. What is
// badly encoded is given as it is.
std::string ais_custom_value(std::string_view plain);
std::string ais_plain_value(std::string_view custom);

// Only a write by one request takes custom properties. They are set for any object, and a rename
// keeps them. Thread: any (immutable). Borrows the paths.
class AisDescribing final : public Describing {
 public:
  explicit AisDescribing(const AisPaths& paths) : paths_(paths) {}
  void build_describe(HttpRequest& request, std::string_view name,
                      const WriteRequest& like) const override;

 private:
  const AisPaths& paths_;
};

// Thread: any (immutable). Borrows the paths.
class AisAppends final : public Appends {
 public:
  AisAppends(const AisPaths& paths, bool is_remote) : paths_(paths), is_remote_(is_remote) {}
  bool lacks_multipart(const Error& refusal) const override;

  void build_append(HttpRequest& request, std::string_view name, std::string_view handle,
                    std::span<const std::span<const std::byte>> bytes) const override;
  std::string handle(const ResponseHead& head) const override;
  void build_flush(HttpRequest& request, std::string_view name,
                   std::string_view handle) const override;
  void build_rename(HttpRequest& request, std::string_view from,
                    std::string_view to) const override;
  // Targets of older servers send each other names without encoding them: they would be cut off.
  // Objects of other services are not renamed at all.
  bool moves_to(std::string_view name) const override {
    return !is_remote_ && paths_.full_name(name).find_first_of("%#?") == std::string::npos;
  }

 private:
  const AisPaths& paths_;
  const bool is_remote_;
};

}  // namespace headrace
