// The directory that a store of files has opened, which its names are relative to.
#pragma once

#include <sys/stat.h>

#include <string>
#include <string_view>
#include <utility>

#include "headrace/base/result.h"
#include "headrace/format/url.h"

namespace headrace {

// Thread: any; immutable.
class FileRoot {
 public:
  // `directory` is absolute, without '/' at the end: "" is the machine's root.
  explicit FileRoot(std::string directory) : directory_(std::move(directory)) {}

  const std::string& directory() const { return directory_; }
  std::string path_of(std::string_view name) const { return cat(directory_, "/", name); }
  std::string url_of(std::string_view name) const {
    return Url{.scheme = Scheme::kFile, .bucket = {}, .name = path_of(name)}.to_string();
  }
  Error with_url(Error error, std::string_view name) const {
    return std::move(error).with_url(url_of(name));
  }
  // If the directory itself is missing, the error says so instead of blaming the name.
  Error no_directory_or(Error error) const {
    struct stat status{};
    if (error.code() == Code::kNotFound && ::stat(path_of("").c_str(), &status) != 0) {
      return Error(Code::kNotFound, cat("no such directory: ", path_of("")));
    }
    return error;
  }

 private:
  const std::string directory_;
};

}  // namespace headrace
