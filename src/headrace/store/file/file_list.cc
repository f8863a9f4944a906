#include "headrace/store/file/file_list.h"

#include <dirent.h>
#include <simdjson.h>

#include <algorithm>
#include <cerrno>

#include "headrace/base/ascii.h"
#include "headrace/store/file/file_io.h"

namespace headrace {
namespace {

constexpr uint32_t kDefaultPageSize = 1000;
constexpr uint32_t kMaxPageSize = 10'000;

// A token is a letter followed by what was listed last: an object's name or a common prefix.
constexpr char kAfterObject = 'o', kAfterPrefix = 'p';

struct DirectoryCloser {
  void operator()(DIR* stream) const { ::closedir(stream); }
};

bool is_directory_key(std::string_view key) { return key.ends_with('/'); }

// Error messages are text, so other bytes are written as \xNN.
std::string shown(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f) {
      out += c;
    } else {
      out += "\\x";
      out += kHexDigits[byte >> 4];
      out += kHexDigits[byte & 15];
    }
  }
  return out;
}

// The directory that has all names with this prefix: "a/b/c" gives "a/b/".
std::string_view directory_part(std::string_view prefix) {
  const size_t slash = prefix.rfind('/');
  return slash == prefix.npos ? std::string_view() : prefix.substr(0, slash + 1);
}

}  // namespace

std::string after_prefix(std::string_view prefix) {
  std::string after(prefix);
  while (!after.empty() && static_cast<unsigned char>(after.back()) == 0xff) after.pop_back();
  if (!after.empty())
    after.back() = static_cast<char>(static_cast<unsigned char>(after.back()) + 1);
  return after;
}

FileWalk::FileWalk(std::string root, std::string prefix, const std::string& lower,
                   const std::string& upper, OnCircle on_circle, size_t window_names)
    : root_(std::move(root)),
      prefix_(std::move(prefix)),
      lower_(std::max(lower, prefix_)),
      upper_([&] {
        std::string end = after_prefix(prefix_);
        if (end.empty()) return upper;
        return upper.empty() ? end : std::min(upper, end);
      }()),
      on_circle_(std::move(on_circle)),
      window_names_(window_names) {}

std::string FileWalk::path_of(std::string_view name) const { return cat(root_, "/", name); }

bool FileWalk::holds(std::string_view name, bool is_directory) const {
  if (!upper_.empty() && name >= upper_) return false;
  return is_directory ? after_prefix(name) > lower_ : name >= lower_;
}

Result<void> FileWalk::start() {
  started_ = true;
  struct stat status{};
  if (::stat(path_of("").c_str(), &status) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) {
      return fail(Code::kNotFound, "no such directory: ", path_of(""));
    }
    return std::unexpected(file_error(errno, Access::kRead));
  }
  const std::string_view first = directory_part(prefix_);
  // No name can have this prefix: nothing is listed.
  if (!first.empty() && !check_name(first.substr(0, first.size() - 1))) return {};
  for (size_t slash = first.find('/'); slash != first.npos; slash = first.find('/', slash + 1)) {
    above_.emplace_back(status.st_dev, status.st_ino);
    if (::stat(path_of(first.substr(0, slash + 1)).c_str(), &status) != 0) {
      if (errno == EACCES) {
        return fail(Code::kPermissionDenied, "the directory ", path_of(first), " may not be read");
      }
      return {};
    }
  }
  const Result<bool> entered = enter(std::string(first));
  if (!entered) return std::unexpected(entered.error());
  return {};
}

Result<bool> FileWalk::enter(std::string name) {
  Directory directory;
  directory.name = std::move(name);
  struct stat status{};
  if (::stat(path_of(directory.name).c_str(), &status) != 0) {
    if (errno == EACCES) {
      return fail(Code::kPermissionDenied, "the directory ", path_of(directory.name),
                  " may not be read");
    }
    return false;
  }
  directory.device = status.st_dev;
  directory.inode = status.st_ino;
  const auto is_this = [&](dev_t device, ino_t inode) {
    return device == status.st_dev && inode == status.st_ino;
  };
  if (std::ranges::any_of(stack_, [&](const Directory& e) { return is_this(e.device, e.inode); }) ||
      std::ranges::any_of(above_, [&](const auto& e) { return is_this(e.first, e.second); })) {
    if (on_circle_) on_circle_(directory.name);
    return false;
  }
  if (Result<void> read = read_window(directory); !read) return std::unexpected(read.error());
  stack_.push_back(std::move(directory));
  return true;
}

Result<void> FileWalk::read_window(Directory& directory) const {
  const std::string last = directory.keys.empty() ? std::string() : directory.keys.back();
  directory.keys.clear();
  directory.next = 0;
  directory.complete = true;
  const std::string path = path_of(directory.name);
  const auto failed = [&](int number) -> std::unexpected<Error> {
    if (number == EACCES || number == EPERM) {
      return fail(Code::kPermissionDenied, "the directory ", path, " may not be read");
    }
    const Error error = file_error(number, Access::kRead);
    return fail(error.code(), "the directory ", path, ": ", error.message());
  };
  const std::unique_ptr<DIR, DirectoryCloser> stream(::opendir(path.c_str()));
  if (!stream) {
    if (errno == ENOENT || errno == ENOTDIR) return {};  // gone since its name was read
    return failed(errno);
  }
  std::vector<std::string>& keys = directory.keys;  // a heap, the greatest first
  std::string name;
  for (;;) {
    errno = 0;
    const dirent* entry = ::readdir(stream.get());
    if (entry == nullptr) {
      if (errno != 0) return failed(errno);
      break;
    }
    std::string_view key(entry->d_name);
    if (key == "." || key == "..") continue;
    bool is_directory = entry->d_type == DT_DIR;
    if (entry->d_type == DT_LNK || entry->d_type == DT_UNKNOWN) {
      struct stat status{};
      if (::fstatat(::dirfd(stream.get()), entry->d_name, &status, 0) != 0) {
        // Dangling links and files that have just disappeared are not objects.
        if (errno == ENOENT || errno == ELOOP || errno == ENOTDIR || errno == EACCES) continue;
        return failed(errno);
      }
      is_directory = S_ISDIR(status.st_mode);
      if (!is_directory && !S_ISREG(status.st_mode)) continue;
    } else if (!is_directory && entry->d_type != DT_REG) {
      continue;
    }
    if (!is_directory && key.starts_with(kTempPrefix)) continue;
    name.assign(directory.name).append(key);
    if (is_directory) name += '/';
    if (!holds(name, is_directory)) continue;
    if (!simdjson::validate_utf8(key.data(), key.size())) {
      return fail(Code::kInvalidArgument, "the directory ", path,
                  " holds a file whose name is not ", "UTF-8 (", shown(key),
                  "): it cannot be listed; rename it");
    }
    const std::string_view full_key = std::string_view(name).substr(directory.name.size());
    if (full_key <= last) continue;
    if (keys.size() == window_names_) {
      directory.complete = false;
      if (full_key >= keys.front()) continue;
      std::ranges::pop_heap(keys);
      keys.pop_back();
    }
    keys.emplace_back(full_key);
    std::ranges::push_heap(keys);
  }
  std::ranges::sort_heap(keys);
  return {};
}

Result<std::optional<ObjectInfo>> FileWalk::next() {
  if (unread_) return std::exchange(unread_, std::nullopt);
  if (!started_) {
    if (Result<void> begun = start(); !begun) return std::unexpected(begun.error());
  }
  while (!stack_.empty()) {
    Directory& directory = stack_.back();
    if (directory.next == directory.keys.size()) {
      if (directory.complete) {
        stack_.pop_back();
      } else if (Result<void> read = read_window(directory); !read) {
        return std::unexpected(read.error());
      }
      continue;
    }
    const std::string& key = directory.keys[directory.next++];
    std::string name = directory.name + key;
    const bool is_directory = is_directory_key(key);
    if (!holds(name, is_directory)) continue;  // skip_to() has moved the bound
    if (is_directory) {
      if (const Result<bool> entered = enter(std::move(name)); !entered) {
        return std::unexpected(entered.error());
      }
      continue;
    }
    struct stat status{};
    if (::stat(path_of(name).c_str(), &status) != 0) {
      if (errno == ENOENT || errno == ENOTDIR || errno == ELOOP) continue;
      const Error error = file_error(errno, Access::kRead);
      return fail(error.code(), "the file ", path_of(name), ": ", error.message());
    }
    if (!S_ISREG(status.st_mode)) continue;
    return info_of(std::move(name), status);
  }
  return std::nullopt;
}

void FileWalk::skip_to(const std::string& lower) { lower_ = std::max(lower_, lower); }

Result<std::unique_ptr<FileWalk>> walk_for(const std::string& root, const ListRequest& request,
                                           FileWalk::OnCircle on_circle) {
  std::string lower = request.start_offset;
  if (const std::string& token = request.page_token; !token.empty()) {
    std::string after = token.substr(1);
    if (token.front() == kAfterObject) {
      after += '\0';  // the next name that there can be
    } else if (token.front() == kAfterPrefix) {
      after = after_prefix(after);
    } else {
      return invalid_argument("'", shown(token), "' is no page token of this store");
    }
    lower = std::max(lower, after);
  }
  return std::make_unique<FileWalk>(root, request.prefix, std::move(lower), request.end_offset,
                                    std::move(on_circle));
}

Result<ColumnPage> list_page(FileWalk& walk, const ListRequest& request,
                             const std::function<bool()>& cancelled) {
  const size_t page_size =
      request.max_results == 0 ? kDefaultPageSize : std::min(request.max_results, kMaxPageSize);
  ColumnPage page;
  std::string token;
  for (size_t count = 0;; ++count) {
    if (cancelled()) return fail(Code::kCancelled, "cancelled");
    Result<std::optional<ObjectInfo>> found = walk.next();
    if (!found) return std::unexpected(found.error());
    if (!*found) return page;
    ObjectInfo& info = **found;
    if (count == page_size) {
      walk.unread(std::move(info));
      page.next_page_token = std::move(token);
      return page;
    }
    const size_t delimiter = request.delimiter.empty()
                                 ? std::string::npos
                                 : info.name.find(request.delimiter, request.prefix.size());
    if (delimiter == std::string::npos) {
      token = cat(std::string_view(&kAfterObject, 1), info.name);
      page.add(info);
    } else {
      std::string prefix = info.name.substr(0, delimiter + request.delimiter.size());
      token = cat(std::string_view(&kAfterPrefix, 1), prefix);
      walk.skip_to(after_prefix(prefix));
      page.prefixes.push_back(std::move(prefix));
    }
  }
}

}  // namespace headrace
