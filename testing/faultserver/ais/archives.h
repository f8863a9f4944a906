// Members of archives: tar, compressed tar and zip.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "body.h"
#include "storage.h"

namespace faultserver::ais {

struct Member {
  std::string name{};
  Body body{};
};

// By the extension of its name.
bool is_archive(std::string_view name);
// In the order of the archive; none of what cannot be read.
std::vector<Member> members_of(const Object& object);

// A member as the server writes it: ustar, and a header of its own in front where a name or a size
// does not fit in. `modified_us` 0: of no time.
void append_tar_member(std::vector<Body>& out, const std::string& name, const Body& content,
                       int64_t modified_us);
// What ends an archive.
Body tar_end();
std::string zip_of(const std::vector<Member>& members);
std::string gzip_of(std::string_view bytes);

}  // namespace faultserver::ais
